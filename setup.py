"""README for package pages, which cannot follow links to files of this repository."""

import re
from pathlib import Path

from setuptools import setup

readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
readme = re.sub(r"!\[.*?\]\((?!https?:).*?\)\n+", "", readme)  # pictures
readme = re.sub(r"\[(.*?)\]\((?!https?:)(.*?)\)", r"\1 (`\2`)", readme)
setup(
    long_description=f"{readme}\nPaths are those in the source distribution.\n",
    long_description_content_type="text/markdown",
)
