"""How fast it is: ``tox -e bench``. Nothing here is a check of correctness, and nothing here runs with the tests.

Machines are shared and noisy, so an absolute rate means little; what counts is a ratio between columns of one run, and
CPU per job, which moves less. ``report.py`` collects figures and prints one table at the end; a subject is a
``test_*.py`` that measures the same on every broker of ``conftest.py``. Other clients and queues, as further columns of
the same run, are further fixtures there.
"""
