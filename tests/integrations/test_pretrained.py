"""A model class of Hugging Face that holds a loss, through `save_pretrained` and `from_pretrained`."""

import pytest
import torch

import aimfor

pytest.importorskip("transformers", reason="the extra integration is not installed")

from transformers import BertConfig, BertForSequenceClassification, BertModel

AIM = "aucpr; num_anchors=3"


class WithLoss(BertForSequenceClassification):
    aim = AIM

    def __init__(self, config):
        super().__init__(config)
        self.aimed = aimfor.Loss(self.aim, priors=0.2)
        self.post_init()

    def step(self, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(number)
        words = torch.randint(2, 30, (16, 6), generator=generator)
        logits = self.train()(input_ids=words).logits
        return self.aimed(logits[:, 1] - logits[:, 0], words[:, 0] < 10).detach()


class OtherAim(WithLoss):
    aim = "aucroc; num_anchors=3"


def config() -> BertConfig:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertConfig(vocab_size=30, max_position_embeddings=8, **sizes, **dropout)


def assert_fresh(loss: aimfor.Loss) -> None:
    expected = aimfor.Loss(loss.aim, priors=0.2).state_dict()
    for name, tensor in loss.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def litter() -> None:
    """Leave memory behind that looks like that of a trained loss."""
    for _ in range(20):
        loss = aimfor.Loss(AIM, priors=0.2)
        loss(torch.randn(16), torch.arange(16) % 3 == 0)
        del loss


@pytest.mark.parametrize("first", ["thresholds", "state_dict", "step"])
def test_a_base_checkpoint_gives_a_fresh_loss(first, tmp_path):
    BertModel(config()).save_pretrained(tmp_path)
    litter()
    model = WithLoss.from_pretrained(tmp_path)
    if first == "thresholds":
        assert torch.equal(model.aimed.thresholds, torch.zeros(3, 1))
    if first == "step":
        value = model.step(0)
        fresh = WithLoss(config())
        fresh.load_state_dict(
            {name: tensor for name, tensor in model.state_dict().items() if "aimed" not in name}, strict=False
        )
        assert torch.equal(value, fresh.step(0))
        for name, tensor in model.aimed.state_dict().items():
            assert torch.equal(tensor, fresh.aimed.state_dict()[name]), name
    else:
        assert_fresh(model.aimed)
    assert model.aimed.priors.item() == pytest.approx(0.2)


def test_a_model_saved_before_its_first_step_loads_as_a_fresh_one(tmp_path):
    BertModel(config()).save_pretrained(tmp_path / "base")
    WithLoss.from_pretrained(tmp_path / "base").save_pretrained(tmp_path / "whole")
    assert_fresh(WithLoss.from_pretrained(tmp_path / "whole").aimed)


def test_a_trained_loss_is_saved_and_loaded_with_its_model(tmp_path):
    model = WithLoss(config())
    for number in range(3):
        model.step(number)
    model.save_pretrained(tmp_path)
    other = WithLoss.from_pretrained(tmp_path)
    assert other.aimed.state.batches == 3
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    assert torch.equal(other.step(9), model.step(9))


def test_a_checkpoint_of_another_aim_starts_anew(tmp_path):
    model = WithLoss(config())
    model.step(0)
    model.save_pretrained(tmp_path)
    with pytest.warns(aimfor.OtherAimWarning, match="the saved state is of a loss for 'aucpr"):
        other = OtherAim.from_pretrained(tmp_path)
    assert_fresh(other.aimed)
