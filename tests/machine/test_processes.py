"""What a process knows of its machine."""

import os

from rapid.machine.lease import usable_cores
from rapid.machine.processes import stolen_seconds


def test_stolen_time_is_that_of_the_cores_of_this_process(tmp_path):
    ours = usable_cores()
    rows = [f"cpu{core} 1 2 3 4 5 6 7 {50 if core in ours else 9000} 0 0" for core in range(4096)]
    (tmp_path / "stat").write_text("\n".join(["cpu 9 9 9 9 9 9 9 9 9 9", *rows, "ctxt 1", ""]))
    assert stolen_seconds(tmp_path / "stat") == 50 * len(ours) / os.sysconf("SC_CLK_TCK")


def test_where_nobody_counts_it_it_is_0(tmp_path):
    assert stolen_seconds(tmp_path / "none") == 0
