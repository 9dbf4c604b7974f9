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
        (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Tanh()), nn.Linear(6, 3)),
         r"Tanh '1\.0' is not supported; supported modules: Sequential, Linear, ReLU, Conv1d, .*LogSoftmax, and "
         r"your own whose forward uses these; .* continuous and piecewise linear"),
        (lambda nn: nn.ModuleList([nn.Linear(4, 3)]), "^ModuleList is not supported"),
        (lambda nn: nn.LazyLinear(3), "LazyLinear has no weights yet; run the module once on an input"),
        (lambda nn: type("Twice", (Doubled, nn.Linear), {})(4, 3), "Twice holds no Linear module, so the number of in"),
        (hooked, "Linear has forward hooks or a replaced forward, which may change its output; remove them"),
        (patched, "Linear has forward hooks or a replaced forward"),
        (lambda nn: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
         r"ParametrizedLinear is parametrized; make its weights plain first with .*remove_parametrizations"),
        (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(5, 3)),
         r"Linear '2' expects 5 inputs, what comes before it has shape \(1, 6\)"),
        (lambda nn: nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=-1), nn.ReLU()),
         "ReLU '2' follows Softmax '1', which is taken only at the end"),
        (lambda nn: nn.Sequential(nn.LogSoftmax(dim=-1), nn.Linear(4, 3)), "Linear '1' follows LogSoftmax '0'"),
        (lambda nn: nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=0)), "Softmax '1' along axis 0 of shape"),
        (lambda nn: nn.Sequential(nn.Flatten(2), nn.Linear(4, 3)), r"Flatten '0' flattens axes 2\.\.-1 of shape"),
        (lambda nn: nn.Sequential(nn.Flatten(1, 2), nn.Linear(4, 3)), r"Flatten '0' flattens axes 1\.\.2 of shape"),
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


# Modules with space, and forwards of their own.


def fill(module: Any, torch: ModuleType) -> Any:
    """Statistics of a batch normalisation that are not those of a fresh module."""
    for m in module.modules():
        if getattr(m, "running_mean", None) is not None:
            m.running_mean.copy_(torch.randn_like(m.running_mean))
            m.running_var.copy_(torch.rand_like(m.running_var) + 0.5)
    return module


SPATIAL: dict[str, tuple[Build, tuple[int, ...]]] = {
    "Conv1d": (lambda nn: nn.Sequential(nn.Conv1d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()), (2, 7)),
    "Conv2d": (lambda nn: nn.Sequential(nn.Conv2d(2, 4, 3, padding="same", dilation=2, groups=2, bias=False),
                                        nn.Flatten()), (2, 5, 4)),
    "Conv3d": (lambda nn: nn.Sequential(nn.Conv3d(1, 2, 2, padding=(0, 1, 0)), nn.Flatten()), (1, 3, 2, 3)),
    "a convolution alone": (lambda nn: nn.Conv2d(1, 3, (2, 4), padding="valid"), (1, 2, 4)),
    "BatchNorm2d": (lambda nn: nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU(),
                                             nn.Flatten(), nn.BatchNorm1d(12, affine=False)), (2, 3, 3)),
    "MaxPool": (lambda nn: nn.Sequential(nn.MaxPool2d(3, 2, padding=1), nn.Flatten(), nn.Linear(12, 3)), (2, 5, 4)),
    "MaxPool, ceil mode": (lambda nn: nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), nn.Flatten()), (1, 5, 3)),
    "AvgPool": (lambda nn: nn.Sequential(nn.AvgPool2d(2, 1, padding=1), nn.Flatten()), (2, 3, 3)),
    "AvgPool of the image only": (
        lambda nn: nn.Sequential(nn.AvgPool1d(3, 2, padding=1, count_include_pad=False), nn.Flatten()), (2, 6)),
    "AdaptiveAvgPool": (lambda nn: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), (3, 4, 5)),
    "AdaptiveAvgPool to 2": (lambda nn: nn.Sequential(nn.AdaptiveAvgPool2d((2, None)), nn.Flatten()), (1, 4, 3)),
    "AdaptiveMaxPool": (lambda nn: nn.Sequential(nn.AdaptiveMaxPool1d(2), nn.Flatten()), (2, 6)),
    "other activations": (lambda nn: nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.1), nn.Linear(8, 8), nn.ReLU6(),
                                                   nn.Linear(8, 6), nn.Hardtanh(-0.5, 0.5), nn.Hardsigmoid()), (4,)),
    "PReLU": (lambda nn: nn.Sequential(nn.Conv2d(1, 2, 2), nn.PReLU(2, 0.3), nn.Flatten(), nn.PReLU()), (1, 3, 3)),
    "padding": (lambda nn: nn.Sequential(nn.ZeroPad2d((1, 0, 2, 1)), nn.ReflectionPad2d(1), nn.ReplicationPad2d(1),
                                         nn.ConstantPad2d(1, 0.5), nn.Flatten()), (1, 2, 3)),
    "Unflatten": (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 1, 2),
                                           nn.Flatten()), (4,)),
    "a subclass with a forward of its own": (lambda nn: type("Twice", (Doubled, nn.Linear), {})(4, 3), (4,)),
    "a Sequential with a forward of its own": (
        lambda nn: type("Odd", (Doubled, nn.Sequential), {})(nn.Linear(4, 3), nn.ReLU()), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("name", SPATIAL)
def test_modules_with_space(nn: Any, torch: ModuleType, name: str) -> None:
    build, shape = SPATIAL[name]
    module = fill(build(nn), torch)
    net = from_torch(module, shape)
    assert net.input_shape == (1, *shape)
    agrees(net, module, (1, *shape), torch)
    x = torch.randn(1, *shape)
    with torch.no_grad():
        expected = module.eval()(x).double().numpy().reshape(-1)
    np.testing.assert_allclose(net.runtime(x.numpy().reshape(-1)), expected)  # type: ignore[misc]


def lenet(torch: ModuleType) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class LeNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 3, 3, padding=1)
            self.fc1, self.fc2 = nn.Linear(12, 6), nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.conv1((x - 0.5) / 0.25)), 2)
            x = F.relu(F.max_pool2d(self.conv2(x), (2, 1)))
            x = x.view(x.size(0), -1)
            x = F.dropout(F.relu(self.fc1(x)), training=self.training)
            return F.log_softmax(self.fc2(x), dim=1)

    return LeNet()


def residual(torch: ModuleType) -> Any:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.relu = nn.ReLU(inplace=True)
            self.skip = nn.Conv2d(channels, out, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += self.skip(x)
            return self.relu(out)

    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), Block(2, 2, 1), Block(2, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(3, 3),
    )  # fmt: skip


def branching(torch: ModuleType) -> Any:
    """Branches joined and compared: cat, stack, chunk, maximum, mean, abs, clamp, indexing."""
    nn = torch.nn

    class Branching(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(1, 2, 1)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            y = torch.cat([nn.functional.leaky_relu(self.a(x), 0.2), self.b(x).clamp(min=-0.5)], dim=1)
            first, second = y.chunk(2, dim=1)
            z = torch.stack([torch.maximum(first, second), first.abs()], dim=1).flatten(1, 2)
            z = z.mean(dim=(2, 3))
            w = y.permute(0, 2, 3, 1)[:, 0, 1, :] - z.unsqueeze(0).squeeze(0)
            return self.head(torch.cat((w, z), -1))

    return Branching()


@pytest.mark.parametrize("build", [lenet, residual, branching])
def test_forwards_of_their_own(torch: ModuleType, build: Callable[[ModuleType], Any]) -> None:
    torch.manual_seed(0)
    module = fill(build(torch), torch)
    net = from_torch(module, (1, 6, 8))
    assert net.dropped == ("log_softmax (node 'log_softmax')" if build is lenet else "")
    reference = copy.deepcopy(module).double().eval()
    for _ in range(3):
        x = torch.randn(1, 1, 6, 8, dtype=torch.float64)
        with torch.no_grad():
            expected = reference(x).numpy().reshape(-1)
        logits = net(x.numpy().reshape(-1))
        if build is lenet:
            logits -= np.log(np.exp(logits).sum())
        np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
    assert module.training


@pytest.mark.parametrize("dynamo", [False, True], ids=["old exporter", "new exporter"])
@pytest.mark.parametrize("build", [lenet, residual, branching])
def test_exported_convolutional_models(
    torch: ModuleType, tmp_path: Path, build: Callable[[ModuleType], Any], dynamo: bool
) -> None:
    if dynamo:
        pytest.importorskip("onnxscript", reason="the new exporter needs onnxscript; run: pip install onnxscript")
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; run: pip install onnxruntime")
    torch.manual_seed(0)
    module = fill(build(torch), torch)
    export(torch, module, tmp_path / "model.onnx", dynamo, dynamic=False, shape=(1, 6, 8))
    net = load(tmp_path / "model.onnx")
    session = ort.InferenceSession(tmp_path / "model.onnx")
    for _ in range(3):
        x = np.random.default_rng(0).normal(size=(1, 1, 6, 8)).astype(np.float32)
        (expected,) = session.run(None, {session.get_inputs()[0].name: x})
        logits = net(x.reshape(-1))
        if build is lenet:
            logits -= np.log(np.exp(logits).sum())
        np.testing.assert_allclose(logits, expected.reshape(-1), rtol=1e-4, atol=1e-5)


def test_a_forward_that_branches_on_values_is_refused(torch: ModuleType) -> None:
    class Gate(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            return y if y.sum() > 0 else -y

    with pytest.raises(ModelError, match=r"the forward of Gate cannot be traced by torch\.fx \(.*dynamo=True"):
        from_torch(Gate(4, 3), (4,))


def own(torch: ModuleType, forward: Callable[[Any, Any], Any], **parts: Any) -> Any:
    """A module with these parts and this forward(self, x)."""
    module = type("Own", (torch.nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def test_what_is_changed_in_place_must_not_be_used_again(torch: ModuleType) -> None:
    nn = torch.nn

    def forward(self: Any, x: Any) -> Any:
        y = self.a(x)
        flat = y.view(1, -1)
        return flat + self.relu(y)  # flat has been changed as well

    wrong = own(torch, forward, a=nn.Linear(3, 3), relu=nn.ReLU(inplace=True))
    with pytest.raises(ModelError, match=r"'relu' changes 'a' in place, and 'add' uses that later; use the version"):
        from_torch(wrong)
    right = own(torch, forward, a=nn.Linear(3, 3), relu=nn.ReLU())
    agrees(from_torch(right), right, (1, 3), torch)


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (
            lambda self, x: self.a(x).tanh(),
            r"tanh \(node 'tanh'\) is not supported; supported functions: abs",
        ),
        (
            lambda self, x: self.a(self.a(x).sigmoid()),
            r"Linear 'a' follows sigmoid \(node 'sigmoid'\), which is taken only at the end",
        ),
        (lambda self, x: self.a(x) * x, r"mul \(node 'mul'\) multiplies two values .* not piecewise linear"),
        (lambda self, x: (self.a(x), x), "the output of Own is tuple, not one tensor that depends on the input"),
        (
            lambda self, x: self.t.cat([x, self.a(x).softmax(-1)], -1),
            r"cat \(node 'cat'\) follows softmax \(node 'softmax'\), which is taken only at the end",
        ),
        (lambda self, x: self.a(x).softmax(-1) + x, r"add \(node 'add'\) follows softmax"),
        (
            lambda self, x: self.t.nn.functional.dropout(self.a(x)),
            r"dropout \(node 'dropout'\) is in training mode",
        ),
        (lambda self, x: self.a(x).sum(-1, dtype=self.t.int64), r"sum \(node 'sum_1'\) computes in torch\.int64"),
        (lambda self, x: self.a(x).to("cpu"), r"to \(node 'to'\) is not supported"),
        (
            lambda self, x: self.a(x)[0, None] + self.a(x).T,
            r"the output of Own has shape \(4, 4\) for an input of",
        ),
    ],
)
def test_forwards_that_are_refused(torch: ModuleType, forward: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_torch(own(torch, forward, a=torch.nn.Linear(4, 4), t=torch))


@pytest.mark.parametrize(
    "build",
    [
        lambda nn: nn.MaxPool2d(2),
        lambda nn: nn.AvgPool2d(2),
        lambda nn: nn.Conv2d(1, 2, 3),
        lambda nn: nn.AdaptiveAvgPool2d(1),
    ],
)
def test_an_image_without_a_batch_axis_is_not_mistaken(nn: Any, build: Build) -> None:
    """torch takes (1, 6, 6) for one channel without a batch; here the first axis is the batch."""
    with pytest.raises(
        ModelError, match=r"2d '0' expects a batch axis, channels and 2 axes of space, got shape \(1, 6, 6\)"
    ):
        from_torch(nn.Sequential(build(nn), nn.Flatten(0)), (6, 6))


def test_a_network_that_differs_from_its_module_is_not_handed_out(nn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were an operation read wrongly, the module itself would say so."""
    from layercert.io.torch import modules

    monkeypatch.setitem(modules.MODULES, "ReLU", lambda call, m, x: call.op("Abs", x))
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(
        ModelError, match=r"the network read from Sequential differs from the model itself: .* please report it"
    ):
        from_torch(module)
    from_torch(nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=-1)))


def test_a_convolution_needs_the_shape_of_the_input(nn: Any) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    with pytest.raises(ModelError, match=r"Conv2d '0' needs the shape of the input: from_torch\(module, input_shape="):
        from_torch(module)
    with pytest.raises(ModelError, match=r"input_shape is the shape of one input without its batch axis, got \(\)"):
        from_torch(module, ())


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


def export(
    torch: ModuleType, module: Any, path: Path, dynamo: bool, dynamic: bool, shape: tuple[int, ...] = (2, 2, 3)
) -> None:
    x = torch.randn(2 if dynamic else 1, *shape)
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


def test_rsub_multiplies_what_it_takes_away(torch: ModuleType) -> None:
    class Reversed(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(4, 5), torch.nn.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            return self.last(torch.rsub(self.first(x), 1.0, alpha=2.0).relu())

    torch.manual_seed(0)
    module = Reversed()
    agrees(from_torch(module), module, (1, 4), torch)
