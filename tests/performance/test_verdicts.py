"""The measurement of reward functions: what it prints."""

from performance import verdicts
from rapid.rewards import MathReward


def test_printed_rows_are_below_the_heads_of_their_columns(monkeypatch, capsys):
    row = ["MathReward", "1", "1,234", "567", "1.2", "300"]
    monkeypatch.setattr(verdicts, "PROBLEM_COUNTS", {MathReward: 1})
    monkeypatch.setattr(verdicts, "draw_exercises", lambda *_: {"test": []})
    monkeypatch.setattr(verdicts, "measure_reward", lambda *_: row)
    monkeypatch.setattr(verdicts, "count_cores", lambda: 1)
    verdicts.main([])
    assert capsys.readouterr().out.splitlines() == [" | ".join(verdicts.HEADS), " | ".join(row)]
