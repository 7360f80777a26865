"""A short run of a trainer: whole, killed by SIGKILL half-way, or resumed; test_killed.py runs it in processes.

python killed_run.py huggingface whole FOLDER
"""

import os
import signal
import sys
import warnings
from pathlib import Path

import torch


def die(*args, **kwargs) -> None:
    """As the kernel ends a process that takes too much memory: nothing is closed or written."""
    os.kill(os.getpid(), signal.SIGKILL)


def huggingface(mode: str, folder: Path) -> dict:
    import test_huggingface as tests

    class Death(tests.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 5:
                die()

    loss = tests.new_loss()
    run = tests.trainer(folder, loss, [Death()] if mode == "cut" else [])
    run.train(resume_from_checkpoint=mode == "resumed" or None)
    return {**loss.loss.state_dict(), **run.model.state_dict()}


def lightning(mode: str, folder: Path) -> dict:
    import test_lightning as tests

    class Death(tests.Callback):
        def on_train_batch_end(self, trainer, *rest):
            if trainer.global_step == 6:
                die()

    callbacks = [tests.SeededDropout(), *([Death()] if mode == "cut" else [])]
    checkpoint = folder / "epoch=0.ckpt" if mode == "resumed" else None
    return tests.train(folder, *callbacks, checkpoint=checkpoint).state_dict()


def accelerate(mode: str, folder: Path) -> dict:
    import test_accelerate as tests

    run = tests.Run()
    if mode == "resumed":
        run.accelerator.load_state(str(folder / "saved"))
    run.train(range(5 if mode == "resumed" else 0, 5 if mode == "cut" else tests.STEPS))
    if mode == "cut":
        run.accelerator.save_state(str(folder / "saved"))
        run.train(range(5, 7))  # lost
        die()
    return run.everything()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    trainer, mode, folder = sys.argv[1:]
    place = Path(folder) / ("whole" if mode == "whole" else "cut")
    torch.save(globals()[trainer](mode, place), Path(folder) / f"{mode}.pt")
