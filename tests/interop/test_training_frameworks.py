"""DataLoader, Lightning, accelerate, Trainer, Ray Train and JAX train from lading, and resume exactly."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from lading._core.train.loader import Loader
from numbered import COUNT, write_numbered

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # the frameworks warn about each other

_BATCHES = 11


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbered(tmp_path_factory.mktemp("samples") / "mds")


def _loader(folder: Path, **options: Any) -> Loader:
    return lading.loader(
        folder, 5, **{"shuffle": True, "seed": 3, "collate": "torch", "columns": ["number"], **options}
    )


@pytest.fixture(scope="module")
def numbers(folder: Path) -> list[list[int]]:
    """The batches of three epochs, one after the other."""
    loader = _loader(folder)
    return [batch["number"].tolist() for _ in range(3) for batch in loader]


@pytest.mark.mechanism("torch's workers over a dataset")
@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
        pytest.param({"num_workers": 1, "multiprocessing_context": "spawn"}, marks=pytest.mark.soak),
        pytest.param({"num_workers": 1, "multiprocessing_context": "forkserver"}, marks=pytest.mark.soak),
    ],
)
def test_a_data_loader_over_a_dataset(folder: Path, options: dict[str, Any]) -> None:
    loader = torch.utils.data.DataLoader(lading.open(folder), batch_size=8, shuffle=True, **options)
    for _ in range(2):
        batches = [*loader]
        pairs = [pair for each in batches for pair in zip(each["number"].tolist(), each["txt"], strict=True)]
        assert sorted(pairs) == [(i, f"text {i}") for i in range(COUNT)]
        assert [len(each["txt"]) for each in batches] == [8] * 6 + [5]


def test_subsets_and_samplers_of_pytorch(folder: Path) -> None:
    ds = lading.open(folder)
    parts = torch.utils.data.random_split(ds, [40, 13])
    found = [
        [n for b in torch.utils.data.DataLoader(part, batch_size=8) for n in b["number"].tolist()] for part in parts
    ]
    assert ([*map(len, found)], sorted(found[0] + found[1])) == ([40, 13], [*range(COUNT)])
    sampler = torch.utils.data.DistributedSampler(ds, num_replicas=2, rank=1, shuffle=False)
    [batch] = torch.utils.data.DataLoader(ds, batch_size=100, sampler=sampler)
    assert batch["number"].tolist() == [*range(1, COUNT, 2), 0]


@pytest.mark.soak
@pytest.mark.parametrize("stop", [4, _BATCHES, _BATCHES + 2])
def test_lightning(folder: Path, numbers: list[list[int]], stop: int, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    model = _lightning_model(lightning)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    options: dict[str, Any] = {"max_epochs": 3, "default_root_dir": tmp_path, **quiet}
    checkpoints = lightning.callbacks.ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=stop, save_top_k=-1)
    trainer = lightning.Trainer(max_steps=stop, callbacks=[checkpoints], **options)
    trainer.fit(first := model(), train_dataloaders=_loader(folder))
    assert first.seen == numbers[:stop]
    [path] = tmp_path.glob(f"*step={stop}.ckpt")
    trainer = lightning.Trainer(enable_checkpointing=False, **options)
    trainer.fit(second := model(), train_dataloaders=_loader(folder), ckpt_path=path)
    assert second.seen == numbers[stop:]


def _lightning_model(lightning: Any) -> Any:
    class Model(lightning.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), list[list[int]]()

        def training_step(self, batch: dict[str, Any], index: int) -> Any:
            self.seen.append(batch["number"].tolist())
            return self.layer(batch["number"].float()[:, None]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-6)

    return Model


@pytest.mark.soak
def test_the_trainer_of_hugging_face(folder: Path, numbers: list[list[int]], tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("sympy")
    transformers = pytest.importorskip("transformers")

    class Model(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), list[list[int]]()

        def forward(self, number: Any, **_: Any) -> dict[str, Any]:
            self.seen.append(number.tolist())
            return {"loss": self.layer(number.float()[:, None]).mean()}

    class Trainer(transformers.Trainer):  # type: ignore[name-defined, misc]
        def get_train_dataloader(self) -> Loader:
            return loader

    class LoaderState(transformers.TrainerCallback, transformers.trainer_callback.ExportableState):  # type: ignore[name-defined, misc]
        def state(self) -> dict[str, Any]:
            return {"args": {}, "attributes": {"loader": loader.state_dict()}}

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            loader.load_state_dict(state.stateful_callbacks["LoaderState"]["attributes"]["loader"])

    args = transformers.TrainingArguments(
        tmp_path / "out", num_train_epochs=3, save_steps=13, use_cpu=True, report_to=[], disable_tqdm=True
    )
    args.ignore_data_skip = True
    loader, model = _loader(folder), Model()
    Trainer(model=model, args=args, callbacks=[LoaderState()]).train()
    assert model.seen == numbers
    loader, model = _loader(folder), Model()
    trainer = Trainer(model=model, args=args, callbacks=[LoaderState()])
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-13"))
    assert model.seen == numbers[13:]
    # Ten batches an epoch: the updates of two batches each are those of an undisturbed run.
    args.gradient_accumulation_steps, args.save_steps = 2, 7
    for resumed, given in ((None, slice(0, 30)), (str(tmp_path / "out" / "checkpoint-7"), slice(14, 30))):
        loader, model = _loader(folder, epoch_size=50), Model()
        trainer = Trainer(model=model, args=args, callbacks=[LoaderState()])
        trainer.train(resume_from_checkpoint=resumed)
        whole = _loader(folder, epoch_size=50)
        assert model.seen == [batch["number"].tolist() for _ in range(3) for batch in whole][given]
        assert trainer.state.global_step == 15
    model = Model()
    ds = lading.open(folder).select("number")
    args.per_device_train_batch_size, args.gradient_accumulation_steps = 5, 1
    transformers.Trainer(model=model, args=args, train_dataset=ds).train()
    assert sorted(number for batch in model.seen[:_BATCHES] for number in batch) == [*range(COUNT)]


@pytest.mark.soak
def test_accelerate_keeps_the_state(folder: Path, numbers: list[list[int]], tmp_path: Path) -> None:
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    loader = accelerator.prepare(_loader(folder))
    accelerator.register_for_checkpointing(loader)
    for _ in zip(range(4), loader, strict=False):
        pass
    accelerator.save_state(str(tmp_path))
    assert [batch["number"].tolist() for batch in loader] == numbers[_BATCHES : 2 * _BATCHES]
    accelerator.load_state(str(tmp_path))
    assert [batch["number"].tolist() for batch in loader] == numbers[4:_BATCHES]


_RAY = """
import json, os, sys, tempfile
import ray, torch
import lading
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def train(config):
    loader = lading.loader(config["folder"], 5, shuffle=True, seed=3, collate="torch")
    rank, begun = ray.train.get_context().get_world_rank(), 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            loader.load_state_dict(torch.load(os.path.join(folder, "loader.pt")))
        begun = 1
    with open(f"{config['out']}/{rank}.{begun}", "w", buffering=1) as log:
        for step, batch in enumerate(loader, loader.batches_done):
            print(json.dumps([step, batch["number"].tolist(), batch["__padding__"].tolist()]), file=log)
            if step == 4 and not begun:
                raise RuntimeError("a worker dies")
            with tempfile.TemporaryDirectory() as folder:
                torch.save(loader.state_dict(), os.path.join(folder, "loader.pt"))
                ray.train.report({"step": step}, checkpoint=None if rank else Checkpoint.from_directory(folder))

ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20)
run = RunConfig(name="run", storage_path=sys.argv[2], failure_config=FailureConfig(max_failures=1))
config = {"folder": sys.argv[1], "out": sys.argv[2]}
TorchTrainer(train, train_loop_config=config, run_config=run, scaling_config=ScalingConfig(num_workers=2)).fit()
"""


@pytest.mark.soak
def test_workers_of_ray_train_begin_again(folder: Path, numbers: list[list[int]], tmp_path: Path) -> None:
    """Both ranks go on at the step behind the last checkpoint, and the epoch is that of one process."""
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _RAY, str(folder), str(tmp_path)], capture_output=True, text=True,
        check=False, timeout=500, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    turns = list[tuple[int, bool]]()
    first, second = (
        [[json.loads(line) for line in (tmp_path / f"{rank}.{begun}").read_text().splitlines()] for rank in range(2)]
        for begun in range(2)
    )
    again = min(step for step, *_ in second[0])
    assert 0 < again <= 4
    for one, other in zip(*([*a[:again], *b] for a, b in zip(first, second, strict=True)), strict=True):
        assert one[0] == other[0]
        for pairs in zip_longest(zip(*one[1:], strict=True), zip(*other[1:], strict=True)):
            turns += [pair for pair in pairs if pair is not None]
    assert [number for number, padding in turns if not padding] == [n for batch in numbers[:_BATCHES] for n in batch]
    for before, after in zip(first, second, strict=True):
        assert before[again:] == after[: len(before) - again]


_RANK = """
import json, sys
import lading
import torch
if sys.argv[2] == "accelerate":
    from accelerate import Accelerator
    prepare = Accelerator(cpu=True).prepare
else:
    torch.distributed.init_process_group("gloo")
    prepare = lambda loader: loader
loader = prepare(lading.loader(sys.argv[1], 5, shuffle=True, seed=3, collate="torch"))
found = [[batch["number"].tolist(), batch["__padding__"].tolist()] for batch in loader]
everything = [None, None]
torch.distributed.all_gather_object(everything, found)
if torch.distributed.get_rank() == 0:
    print(json.dumps(everything))
torch.distributed.destroy_process_group()
"""


@pytest.mark.soak
@pytest.mark.parametrize("way", ["torch", "accelerate"])
def test_two_ranks_share_an_epoch(folder: Path, numbers: list[list[int]], way: str) -> None:
    """Real processes under gloo; accelerate does not shard the loader a second time."""
    if way == "accelerate":
        pytest.importorskip("accelerate")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _RANK, str(folder), way], stdout=subprocess.PIPE, text=True,
            env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank),
                 "WORLD_SIZE": "2", "PYTHONPATH": ":".join(sys.path), "ACCELERATE_USE_CPU": "true"},
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    steps = [*zip(*json.loads(outputs[0]), strict=True)]
    assert len(steps) == 6
    turns = [turn for step in steps for turn in zip_longest(*(zip(*each, strict=True) for each in step))]
    epoch = [number for turn in turns for number, padding in filter(None, turn) if not padding]
    assert epoch == [number for batch in numbers[:_BATCHES] for number in batch]


@pytest.mark.parametrize("last", ["pad", "drop"])
def test_jax_sees_one_shape(folder: Path, last: Any) -> None:
    jax = pytest.importorskip("jax")
    step = jax.jit(lambda total, batch: total + batch.sum())
    total = jax.numpy.zeros((), "int32")
    for batch in _loader(folder, collate="numpy", last=last):
        real = batch["number"] * ~batch["__padding__"] if last == "pad" else batch["number"]
        total = step(total, jax.device_put(real.astype(np.int32)))
    assert step._cache_size() == 1
    if last == "pad":
        assert int(total) == sum(range(COUNT))
