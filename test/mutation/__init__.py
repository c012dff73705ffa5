"""The mutation run: are the tests of a directory able to see a wrong row, or a wrong comparison, in its modules?

``python -m test.mutation`` changes one thing at a time in a module (``mutants.py``), runs the tests of the mirrored
directory with it (``run.py``), and prints what no test has noticed. ``docs/mutation.rst`` has the figures.
"""
