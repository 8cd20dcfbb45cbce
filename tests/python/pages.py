# SPDX-License-Identifier: Apache-2.0
"""Blocks of pages that tests/docs/claims.py leaves to a test here: `claimed.blocks(page, test)`."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / 'tests/docs'))

import claimed  # noqa: E402, F401
