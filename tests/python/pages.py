# SPDX-License-Identifier: Apache-2.0
"""Examples in pages of docs/."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks_of(text, heading):
    """Indented blocks of the section with that heading."""
    section = re.search(rf'^## {re.escape(heading)}\n(.*?)(?=^## |\Z)', text, re.M | re.S)[1]
    return [re.sub('^    ', '', block, flags=re.M) for block in
            re.findall(r'(?<=\n\n)((?:    [^\n]*\n|\n(?=    ))+)', '\n' + section)]
