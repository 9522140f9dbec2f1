"""`lading plan` shows what `_core.train.plan.plan` says."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.train.order import Shuffle
from lading._core.train.plan import plan


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plan") / "d"
    with lading.writer(folder, format="parquet", rows_per_shard=25) as writer:
        for i in range(100):
            writer.write({"txt": f"text {i}", "number": i})
    return str(folder)


def _run(*args: str, status: int = 0) -> str:
    found = CliRunner().invoke(app, ["plan", *args])
    assert found.exit_code == status, found.output
    return found.output


def test_json_is_the_plan(source: str) -> None:
    options = ["--world-size", "4", "--batch-size", "8", "--shuffle", "global", "--seed", "3", "--json"]
    expected = plan(source, 8, world_size=4, shuffle="global", seed=3)
    assert json.loads(_run(source, *options)) == json.loads(json.dumps(expected.to_dict()))
    lanes = json.loads(_run(source, "--shuffle", "block", "--lanes", "16", "--json"))["shuffle"]
    assert lanes == Shuffle("block", lanes["block"], window=32, lanes=16).as_dict()


def test_epochs_and_weights_are_planned(source: str) -> None:
    found = json.loads(_run(source, "--epoch-size", "30", "--weights", "number", "--batch-size", "8", "--json"))
    assert found == json.loads(json.dumps(plan(source, 8, epoch_size=30, weights="number").to_dict()))
    assert (found["samples"], found["batches"]) == (30, 4)


def test_steps_come_before(source: str) -> None:
    assert json.loads(_run(source, "--where", "number < 40", "--json"))["samples"] == 40
    assert json.loads(_run(source, "--sample", "0.5", "--json"))["samples"] == 50


def test_text_shows_batches_and_advice(source: str) -> None:
    shown = " ".join(_run(source, "--world-size", "64", "--batch-size", "32").split())
    assert "1 batch, 2 samples" in shown
    assert "a step of all ranks takes 2,048 samples, and the dataset has 100" in shown


def test_lanes_without_a_block_shuffle_are_misuse(source: str) -> None:
    shown = " ".join(_run(source, "--lanes", "4", "--shuffle", "global", status=2).split())
    assert "only a block shuffle has lanes; found --lanes 4 with global" in shown
    assert "Add --shuffle block" in shown


def test_wrong_sizes_are_misuse(source: str) -> None:
    _run(source, "--ahead-bytes", "many", status=2)
    _run(source, "--shuffle", "py1e", status=2)


def test_options_that_would_be_ignored_are_misuse(source: str) -> None:
    for args, said in (
        (("--total-bytes", "1TB"), "found --total-bytes without --job Add --job --to FORMAT"),
        (("--to", "parquet"), "found --to without --job"),
        (("--rate", "1MB"), "found --rate without --job"),
        (("--job", "--to", "mds", "--shuffle", "none"), "found --shuffle with --job"),
        (("--job", "--to", "mds", "--world-size", "1"), "found --world-size with --job"),
    ):
        assert said in " ".join(_run(source, *args, status=2).split())


def test_batches_by_size(source: str) -> None:
    options = {"batch_tokens": 64, "bucket_by": "len(txt)", "max_padding": 0.2, "batch_size": 20}
    typed = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    made = plan(source, **options)  # type: ignore[arg-type]
    assert json.loads(_run(source, *typed, "--json")) == json.loads(json.dumps(made.to_dict()))
    shown = " ".join(_run(source, *typed).split())
    assert "sizes samples a batch batches 6 – 7 100 9 11" in shown  # 64 characters hold 9 texts of 7
    length = json.loads(_run(source, "--batch-tokens", "99", "--length", "number", "--too-large", "skip", "--json"))
    assert (length["samples"], length["left_out"]) == (100, 0)
    assert "batch_tokens needs" in " ".join(_run(source, "--batch-tokens", "64", status=2).split())
