"""The tests of kafka-taskloop; folders and files mirror those of ``kafka/``."""
