"""What tests share: runners, pipes, readers of Kafka's own schemas. Nothing in here is a test."""
