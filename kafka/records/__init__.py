"""Records as Kafka stores and sends them: batches v2 in both directions, compression, control markers.

    header.py       the layout of a batch, varints, the walk from batch to batch, the CRC check
    builder.py      records -> batch
    reader.py       batch -> records
    validator.py    batch -> whether its records can be read
    control.py      the markers that end transactions
    message_set.py  the format before batches: messages v0 and v1 -> records, and back
    compression.py  one table row per codec (bounded both in its input and in its output)
    log.py          a broker's operations on batches: validate, set offset and timestamp, recover

Independent of topics, requests and sockets. The modules are strictly typed plain Python that mypyc can compile. A
later layout of batches is one more reader and builder beside these, chosen by ``BatchHeader.magic``.
"""

from __future__ import annotations

from kafka.records.builder import NO_ROOM, RecordBatchBuilder, max_record_bytes
from kafka.records.compression import (
    CODEC_NAMES,
    CODECS,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Codec,
    available_codecs,
    codec_for,
)
from kafka.records.control import ABORT, COMMIT, ControlMarker, control_batch, decode_control, encode_control
from kafka.records.header import (
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    BatchHeader,
    check_crc,
    iter_batches,
    parse_header,
)
from kafka.records.log import rewrite_base, scan_log, set_log_append_time, set_max_timestamp, validate_batch
from kafka.records.message_set import MessageSetBuilder, encode_message_set
from kafka.records.reader import Headers, RawRecord, Record, decode_raw, decode_records

__all__ = [
    "ABORT",
    "CODECS",
    "CODEC_NAMES",
    "COMMIT",
    "CREATE_TIME",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "GZIP",
    "HEADER_BYTES",
    "LOG_APPEND_TIME",
    "LZ4",
    "NONE",
    "NO_PRODUCER_ID",
    "NO_ROOM",
    "SNAPPY",
    "ZSTD",
    "BatchHeader",
    "Codec",
    "ControlMarker",
    "Headers",
    "MessageSetBuilder",
    "RawRecord",
    "Record",
    "RecordBatchBuilder",
    "available_codecs",
    "check_crc",
    "codec_for",
    "control_batch",
    "decode_control",
    "decode_raw",
    "decode_records",
    "encode_control",
    "encode_message_set",
    "iter_batches",
    "max_record_bytes",
    "parse_header",
    "rewrite_base",
    "scan_log",
    "set_log_append_time",
    "set_max_timestamp",
    "validate_batch",
]
