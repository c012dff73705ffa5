"""What the worker and its fork server say to each other.

The worker sends a request for each child: ``generation u32``, with :data:`FDS` descriptors: the child's ends of its
channel, and one end of a pipe. On that the server writes two records: that the child was forked, with its pid, and how
it ended: ``kind u8 | pid u32 | status i32 (of wait4) | peak RSS u64 (of wait4) | CPU seconds f64``. Little-endian.
"""

from __future__ import annotations

import struct

FORKED, ENDED = 1, 2
"""The kinds of records."""
RECORD = struct.Struct("<BIiQd")
REQUEST = struct.Struct("<I")
FDS = 5
