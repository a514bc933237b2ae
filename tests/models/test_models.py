"""The architectures as PROTOCOL.md describes them: parameter counts in closed form, forward passes written again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from creditscope.models import ResMLP, SmallCNN, StudentNet, ViTMini

from ..stream.nets import shaken


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("d", "depth", "ratio"), [(256, 4, 1), (512, 2, 1), (32, 12, 2)])
def test_resmlp_has_the_parameters_of_its_description(d, depth, ratio):
    block = 2 * d + (d * d * ratio + d * ratio) + (d * ratio * d + d)
    expected = (3072 * d + d) + depth * block + 2 * d + (d * 10 + 10)
    assert count(ResMLP(3072, 10, d, depth, ratio)) == expected
    assert count(ResMLP(3072, 10, d, depth, ratio, terminal_norm=False)) == expected - 2 * d


def test_student_has_no_normalisation_and_the_parameters_of_its_description():
    d = 128
    model = StudentNet(20, 10, d, 4)
    assert count(model) == (20 * d + d) + 4 * 2 * (d * d + d) + (d * 10 + 10)
    assert not any(isinstance(m, torch.nn.LayerNorm) for m in model.modules())


def test_vit_mini_has_the_parameters_and_tokens_of_its_description():
    d = 128
    block = 4 * d + (3 * d * d + 3 * d) + (d * d + d) + (d * 2 * d + 2 * d) + (2 * d * d + d)
    model = ViTMini(10)
    assert count(model) == (3 * 16 * d + d) + d + 65 * d + 4 * block + 2 * d + (d * 10 + 10)
    assert model.embed(torch.zeros(2, 3, 32, 32)).shape == (2, 65, d)


def test_small_cnn_has_the_parameters_and_stages_of_its_description():
    model = SmallCNN(10)
    conv = sum(9 * a * b + b + 2 * b for a, b in ((3, 32), (32, 64), (64, 128)))
    assert count(model) == conv + (8192 * 256 + 256) + (256 * 10 + 10)
    hiddens = model.eval().hidden_states(torch.zeros(2, 3, 32, 32))
    assert [tuple(h.shape[1:]) for h in hiddens] == [(32, 32, 32), (64, 16, 16), (128, 8, 8), (256,)]


@pytest.mark.parametrize("make", [lambda: ResMLP(64, 10, 256, 2), lambda: StudentNet(64, 10, 256, 2)])
def test_second_map_of_a_branch_starts_small_and_its_bias_at_zero(make):
    torch.manual_seed(0)
    model: Any = make()
    for block in model.blocks:
        assert float(block.linear2.weight.detach().std()) == pytest.approx(0.01, rel=0.02)
        assert not block.linear2.bias.any()
    with torch.no_grad():
        for block in model.blocks:
            block.linear2.weight.fill_(1)
            block.reset_parameters()
            assert float(block.linear2.weight.detach().std()) == pytest.approx(0.01, rel=0.02)


def test_resmlp_forward_is_the_stated_formula():
    model: Any = shaken(ResMLP(12, 10, 8, 2, ratio=2)).double()
    x = torch.randn(3, 3, 2, 2, dtype=torch.float64)
    h = F.linear(x.reshape(3, 12), model.embed.linear.weight, model.embed.linear.bias)
    for block in model.blocks:
        mean, var = h.mean(1, keepdim=True), h.var(1, keepdim=True, correction=0)
        z = (h - mean) / (var + 1e-5).sqrt() * block.norm.weight + block.norm.bias
        z = z @ block.linear1.weight.T + block.linear1.bias
        z = z * 0.5 * (1 + torch.erf(z / 2**0.5))
        h = h + z @ block.linear2.weight.T + block.linear2.bias
    expected = F.linear(F.layer_norm(h, (8,), model.out_ln.weight, model.out_ln.bias), model.out_head.weight)
    torch.testing.assert_close(model(x), expected + model.out_head.bias)


def test_vit_block_is_the_branch_of_a_pre_norm_transformer():
    # the same weights in torch's own encoder layer (norm first): h + f_l(h) must be its output
    d = 8
    model: Any = shaken(ViTMini(10, width=d, depth=1, size=8)).double()
    block = model.blocks[0]
    peer: Any = torch.nn.TransformerEncoderLayer(
        d, 4, 2 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    peer.load_state_dict(
        {
            "self_attn.in_proj_weight": block.qkv.weight,
            "self_attn.in_proj_bias": block.qkv.bias,
            "self_attn.out_proj.weight": block.proj.weight,
            "self_attn.out_proj.bias": block.proj.bias,
            **{
                f"{k}.{p}": getattr(getattr(block, k), p)
                for k in ("linear1", "linear2", "norm1", "norm2")
                for p in ("weight", "bias")
            },
        }
    )
    h = torch.randn(3, 5, d, dtype=torch.float64)
    torch.testing.assert_close(h + block(h), peer(h))


def test_vit_embedding_puts_the_cls_token_first_and_adds_positions():
    model: Any = shaken(ViTMini(10, width=8, depth=1, size=8))
    x = torch.randn(2, 3, 8, 8)
    h = model.embed(x)
    torch.testing.assert_close(h[:, 0], (model.embed.cls + model.embed.pos[:, :1])[:, 0].expand(2, -1))
    patch = x[:, :, 4:8, 0:4].reshape(2, -1)  # second row, first column: the third patch
    by_hand = patch @ model.embed.proj.weight.reshape(8, -1).T + model.embed.proj.bias
    torch.testing.assert_close(h[:, 3], by_hand + model.embed.pos[:, 3], rtol=1e-4, atol=1e-5)


def test_linear_twin_has_the_shapes_of_its_stage_and_is_linear():
    stage: Any = SmallCNN(10, width=8, size=8).blocks[0]
    twin = stage.linear_twin()
    h, k = torch.randn(2, 32, 8, 8), torch.randn(2, 32, 8, 8)
    assert twin(h).shape == stage(h).shape
    torch.testing.assert_close(twin(2 * h - k), 2 * twin(h) - twin(k), rtol=1e-3, atol=1e-4)
