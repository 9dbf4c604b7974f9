"""PyTorch modules, read directly and through both of PyTorch's ONNX exporters."""

from __future__ import annotations

import builtins
import copy
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from layercert.errors import MissingPackageError, ModelError
from layercert.io import from_torch, load
from layercert.network import Network

# Modules are built from torch.nn, handed in as `nn`: torch is imported only where a test runs.
Build = Callable[[Any], Any]


@pytest.fixture
def nn(torch: ModuleType) -> Any:
    torch.manual_seed(0)
    return torch.nn


def agrees(net: Network, module: Any, shape: tuple[int, ...], torch: ModuleType) -> None:
    """The module in evaluation mode and in float64 computes the same logits."""
    module = copy.deepcopy(module).double().eval()
    for _ in range(3):
        x = torch.randn(shape, dtype=torch.float64)
        with torch.no_grad():
            expected = module(x).numpy().reshape(-1)
        np.testing.assert_allclose(net(x.numpy().reshape(-1)), expected, rtol=1e-9, atol=1e-9)


MODULES: dict[str, tuple[Build, tuple[int, ...], tuple[int, ...]]] = {
    "a Linear alone": (lambda nn: nn.Linear(4, 3), (1, 4), ()),
    "no bias": (lambda nn: nn.Linear(4, 3, bias=False), (1, 4), ()),
    "two hidden layers": (
        lambda nn: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
        (1, 4), (6, 5)),
    "nested": (
        lambda nn: nn.Sequential(
            nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(12, 6), nn.ReLU(inplace=True))), nn.Linear(6, 3)),
        (1, 1, 3, 4), (6,)),
    "two Linear in a row": (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), (1, 4), ()),
    "two ReLU in a row": (
        lambda nn: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.ReLU(), nn.Linear(6, 3)), (1, 4), (6,)),
    "ends in ReLU": (lambda nn: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (1, 4), (3,)),
    "starts with ReLU": (lambda nn: nn.Sequential(nn.ReLU(), nn.Linear(4, 3)), (1, 4), (4,)),
    "modules that do nothing": (
        lambda nn: nn.Sequential(
            nn.Identity(), nn.Dropout(), nn.Linear(4, 6), nn.Dropout1d(), nn.ReLU(), nn.AlphaDropout(), nn.Flatten(),
            nn.FeatureAlphaDropout(), nn.Linear(6, 3), nn.Identity()),
        (1, 4), (6,)),
    "without a batch axis": (lambda nn: nn.Sequential(nn.Flatten(0), nn.Linear(12, 3)), (3, 4), ()),
    "one neuron": (lambda nn: nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1)), (1, 1), (1,)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_read_as_torch_computes_them(nn: Any, torch: ModuleType, name: str) -> None:
    build, shape, widths = MODULES[name]
    module = build(nn)
    net = from_torch(module)
    assert net.widths == widths
    assert net.source == f"torch {type(module).__name__}"
    agrees(net, module, shape, torch)


def test_a_module_used_twice_runs_twice(nn: Any, torch: ModuleType) -> None:
    relu, square = nn.ReLU(), nn.Linear(4, 4)
    module = nn.Sequential(square, relu, square, relu, nn.Linear(4, 3))
    net = from_torch(module)
    assert net.widths == (4, 4)
    agrees(net, module, (1, 4), torch)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_parameters_keep_every_bit(nn: Any, torch: ModuleType, dtype: str) -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).to(getattr(torch, dtype))
    net = from_torch(module)
    for layer, W, b in zip((module[0], module[2]), net.weights, net.biases, strict=True):
        np.testing.assert_array_equal(W, layer.weight.detach().double().numpy())
        np.testing.assert_array_equal(b, layer.bias.detach().double().numpy())


@pytest.mark.parametrize("training", [True, False])
def test_the_module_is_left_as_it_was(nn: Any, torch: ModuleType, training: bool) -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.Dropout(), nn.ReLU(), nn.Linear(6, 3)).train(training)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    net = from_torch(module)
    assert module.training is training and all(p.requires_grad and p.grad is None for p in module.parameters())
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    with torch.no_grad():
        module[0].weight.zero_()  # the network has its own copy
    assert net.weights[0].any()


@pytest.mark.parametrize("dim", [None, 1, -1])
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_a_softmax_at_the_end_is_left_out(nn: Any, name: str, dim: int | None) -> None:
    linear = nn.Linear(4, 3)
    module = nn.Sequential(linear, getattr(nn, name)(dim=dim), nn.Identity())
    assert from_torch(module).sha256 == from_torch(linear).sha256
    assert from_torch(module).dropped == f"{name} '1'" and from_torch(linear).dropped == ""


def test_a_subclass_that_runs_the_same_forward_is_taken(nn: Any) -> None:
    linear = type("Dense", (nn.Linear,), {})(4, 3)
    assert from_torch(linear).classes == 3


class Doubled:
    """Mixed into a torch class: a forward of its own."""

    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)  # type: ignore[misc]


def hooked(nn: Any) -> Any:
    module = nn.Linear(4, 3)
    module.register_forward_hook(lambda *args: None)
    return module


def patched(nn: Any) -> Any:
    module = nn.Linear(4, 3)
    module.forward = lambda x: x
    return module


def complex_numbers(nn: Any) -> Any:
    import torch

    return nn.Linear(4, 3).to(dtype=torch.complex64)


def not_finite(nn: Any) -> Any:
    module = nn.Linear(4, 3)
    module.weight.data[2, 1] = float("nan")
    return module


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Sigmoid()), nn.Linear(6, 3)),
         r"Sigmoid '1\.0' is not supported; supported modules: Sequential, Linear, ReLU, Flatten, .*LogSoftmax; "
         r"a module with its own forward can be exported with torch\.onnx\.export"),
        (lambda nn: nn.ModuleList([nn.Linear(4, 3)]), "^ModuleList is not supported"),
        (lambda nn: nn.LazyLinear(3), "LazyLinear has no weights yet; run the module once on an input"),
        (lambda nn: type("Twice", (Doubled, nn.Linear), {})(4, 3), "Twice is not supported"),
        (lambda nn: type("Odd", (Doubled, nn.Sequential), {})(nn.Linear(4, 3)), "Odd is not supported"),
        (hooked, "Linear has forward hooks or a replaced forward, which may change its output; remove them"),
        (patched, "Linear has forward hooks or a replaced forward"),
        (lambda nn: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
         r"ParametrizedLinear is parametrized; make its weights plain first with .*remove_parametrizations"),
        (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(5, 3)),
         "Linear '2' expects 5 inputs, the modules before it produce 6"),
        (lambda nn: nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=-1), nn.ReLU()),
         "Softmax '1' is followed by ReLU '2'; a Softmax is taken only at the end"),
        (lambda nn: nn.Sequential(nn.LogSoftmax(dim=-1), nn.Linear(4, 3)), "LogSoftmax '0' is followed by Linear '1'"),
        (lambda nn: nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=0)), "Softmax '1' runs along dim=0; supported:"),
        (lambda nn: nn.Sequential(nn.Flatten(2), nn.Linear(4, 3)), r"Flatten '0' flattens axes 2\.\.-1 only; su"),
        (lambda nn: nn.Sequential(nn.Flatten(1, 2), nn.Linear(4, 3)), r"Flatten '0' flattens axes 1\.\.2 only"),
        (lambda nn: nn.Sequential(), "Sequential holds no Linear module, so the number of inputs is unknown"),
        (lambda nn: nn.ReLU(), "ReLU holds no Linear module"),
        (lambda nn: nn.Linear(4, 3, device="meta"), "the weight of Linear is on the meta device and holds no numbers"),
        (complex_numbers,
         r"the weight of Linear has dtype torch\.complex64; supported: float16, bfloat16, float32, float64"),
        (not_finite, r"the weight of Linear holds nan at \(2, 1\); weights must be finite numbers"),
        (lambda nn: nn.Linear(4, 3).state_dict(), "from_torch takes a torch.nn.Module, got OrderedDict; for a"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Complex modules:UserWarning", "ignore:Lazy modules:UserWarning")
def test_other_modules_are_refused_by_name(nn: Any, build: Build, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_torch(build(nn))


def test_without_torch_the_command_to_install_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(
        MissingPackageError, match=r"needs the optional package 'torch'.*pip install 'layercert\[torch\]'"
    ):
        from_torch(object())


# Through ONNX: what the exporters write for the same modules.


def mlp(torch: ModuleType) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 7, bias=False), nn.ReLU(), nn.Dropout(), nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)
    )


def normalised(torch: ModuleType) -> Any:
    """Its own forward: input scaling, view, functional ReLU, and a product with a buffer."""

    class Normalised(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(12, 5)
            self.register_buffer("mean", torch.tensor([[[0.5]], [[0.25]]]))
            self.register_buffer("head", torch.randn(5, 3))

        def forward(self, x: Any) -> Any:
            x = (x - self.mean) / 0.3
            x = x.view(x.size(0), -1)
            return -(self.linear(x).relu() @ self.head) + 1.5

    return Normalised()


def reshaped(torch: ModuleType) -> Any:
    """Shapes computed from the input, a transposed image, and LogSoftmax."""

    class Reshaped(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(12, 4)

        def forward(self, x: Any) -> Any:
            x = x.transpose(1, 3)
            x = x.reshape(x.shape[0], x.shape[1] * x.shape[2] * x.shape[3])
            return torch.log_softmax(2 * torch.relu(self.linear(x).unsqueeze(1)).squeeze(1), dim=-1)

    return Reshaped()


def export(torch: ModuleType, module: Any, path: Path, dynamo: bool, dynamic: bool) -> None:
    x = torch.randn(2 if dynamic else 1, 2, 2, 3)
    batch: dict[str, Any] = {}
    if dynamic and dynamo:
        batch = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)}
    elif dynamic:
        batch = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
    with warnings.catch_warnings():  # the exporters warn of their own future
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            torch.onnx.export(module.eval(), (x,), path, dynamo=dynamo, verbose=False, **batch)
        finally:
            logging.disable(logging.NOTSET)


@pytest.mark.parametrize("dynamic", [False, True], ids=["batch of 1", "any batch"])
@pytest.mark.parametrize("dynamo", [False, True], ids=["old exporter", "new exporter"])
@pytest.mark.parametrize("build", [mlp, normalised, reshaped])
def test_exported_models(
    torch: ModuleType, tmp_path: Path, build: Callable[[ModuleType], Any], dynamo: bool, dynamic: bool
) -> None:
    if dynamo:
        pytest.importorskip("onnxscript", reason="the new exporter needs onnxscript; run: pip install onnxscript")
    torch.manual_seed(0)
    module = build(torch)
    export(torch, module, tmp_path / "model.onnx", dynamo, dynamic)
    net = load(tmp_path / "model.onnx")
    assert net.inputs == 12 and net.source == "model.onnx"
    x = torch.randn(1, 2, 2, 3)
    with torch.no_grad():
        expected = module(x).numpy().reshape(-1)
    logits = net(x.numpy().reshape(-1))
    if build is reshaped:
        logits -= np.log(np.exp(logits).sum())
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamo", [False, True], ids=["old exporter", "new exporter"])
def test_an_exported_model_is_the_same_network_bit_for_bit(torch: ModuleType, tmp_path: Path, dynamo: bool) -> None:
    if dynamo:
        pytest.importorskip("onnxscript", reason="the new exporter needs onnxscript; run: pip install onnxscript")
    module = mlp(torch)
    export(torch, module, tmp_path / "model.onnx", dynamo, dynamic=False)
    assert load(tmp_path / "model.onnx").sha256 == from_torch(module).sha256
