"""Clients on listeners with TLS and SASL."""
