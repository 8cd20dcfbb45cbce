# SPDX-License-Identifier: Apache-2.0
"""Test cases whose ranks have a comm."""
import unittest

import matrixshard as mxs
import world
from matrixshard import errors


def status(call, *arguments, **keywords):
    """(status name, rank) of what a call raises; None if it doesn't."""
    try:
        call(*arguments, **keywords)
    except errors.MatrixShardError as error:
        return error.status_name, error.rank
    return None


class CommCase(unittest.TestCase):
    def run_world(self, count, body, *arguments, **keywords):
        """body(comm, *arguments) on `count` ranks; what each returns, by rank."""
        def rank_body(rank):
            with mxs.Comm(thread_count=1, timeout=30) as comm:
                return body(comm, *arguments)
        with self.subTest(ranks=count):
            return world.run_ranks(count, rank_body, **keywords)
