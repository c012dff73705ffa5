"""How fast it is: ``tox -e bench``. Nothing here is a check of correctness, and nothing here runs with the tests.

Machines are shared and noisy, so an absolute rate means little; what counts is a ratio between columns of one run, and
CPU per job, which moves less. ``report.py`` collects figures and prints a table at the end. A subject is a file
``test_*.py`` that measures the same on every broker of ``conftest.py``, the task queue in each kind of install, too
(``places.py``). Other clients and queues are further columns of the same run: ``throughput.py`` and ``waiting.py`` are
the clients' part, ``redis_peers.py`` the queues'.
"""
