"""What any peer can cost: hostile but well-formed requests, their measurement, and a soak beside honest clients.

    python -m test.hostile.measure                    # the table: worst time and memory of each request
    python -m test.hostile.measure_clients            # the same for what clients and workers are given
    python -m test.hostile.soak --minutes 15          # honest clients beside hostile ones

``generator.py`` makes the requests, ``scene.py`` the broker that they meet; ``client_cases.py`` makes
what clients and workers are given.
"""
