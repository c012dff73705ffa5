"""The tests of kafka-taskloop; folders and files mirror those of ``kafka/``.

This file has to exist: ``test`` is also a package of the standard library, and only a regular package on a path before
it comes first."""
