"""How the package is built and what it needs.

``pip install .`` brings ``six`` and ``crcmod`` and nothing else. Everything that makes it faster, prettier or able to
read one more compression codec is an extra. ``pyproject.toml`` beside this file names what a build needs, and
``build_kafka.py`` decides what is compiled.
"""

import pathlib
import re

from setuptools import find_packages, setup

from build_kafka import BuildCompiled, extensions

HERE = pathlib.Path(__file__).resolve().parent

# Read, not imported: importing the package while it is being built would need what it needs.
VERSION = re.search(r'^__version__ = "([^"]+)"$', (HERE / "kafka" / "_version.py").read_text(), re.MULTILINE).group(1)

EXTRAS = {
    "compression": ["cramjam>=2.8"],
    "cli": ["rich>=13", "shtab>=1.13"],
    "fast": ["crc32c>=2.7"],
    "re2": ["google-re2>=1.1"],
    "metrics": ["prometheus-client>=0.20"],
    "msgpack": ["msgpack>=1.0"],
    "pydantic": ["pydantic>=2"],
    "telemetry": ["opentelemetry-proto>=1.27"],
    "test": ["hypothesis>=6.100", "pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.6"],
    "docs": ["sphinx>=7"],
}

setup(
    name="kafka-taskloop",
    version=VERSION,
    description="A Kafka client whose select loop also carries background jobs to broker-backed queues",
    long_description=(HERE / "README.rst").read_text(encoding="utf-8"),
    long_description_content_type="text/x-rst",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=["kafka", "kafka.*"]),
    package_data={"kafka": ["py.typed"]},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildCompiled},
    entry_points={"console_scripts": ["kafka-taskloop = kafka.cli:main"]},
    zip_safe=False,
    install_requires=["six>=1.16", "crcmod>=1.7"],
    extras_require=EXTRAS,
    keywords="kafka apache-kafka client task-queue job-queue share-group worker",
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)),
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
)
