"""Every format that is read, damaged thousands of times: an answer or a clear error, never anything else.

Warnings are errors in these tests, so a damaged file must not make numpy or pillow talk to the user either.
"""

from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image
from scipy.sparse import csr_array

import layercert as lc
from helpers.onnx_models import build
from layercert.certificate.claim import load_certificate
from layercert.errors import InputError, LayerCertError, ModelError
from layercert.io.datasets import load_dataset
from layercert.io.inputs import load_inputs
from layercert.network import Network
from layercert.spec.read import load_spec

#: Mutations of each format; there are 24 of them.
TIMES = 200

Read = Callable[[Path], object]
RNG = np.random.default_rng(0)
#: Two inputs, three hidden neurons, two classes.
NET = Network.from_arrays([RNG.normal(size=(3, 2)), RNG.normal(size=(2, 3))], [RNG.normal(size=3), RNG.normal(size=2)])
X = RNG.uniform(size=(5, 12))
Y = np.arange(5) % 2
PICTURE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)

PROPERTY = """; a comment
(declare-const X_0 Real) (declare-const X_1 Real)
(declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0.25)) (assert (<= X_0 0.75))
(assert (or (and (<= X_1 1e-1) (>= X_1 -0.5)) (and (<= X_1 1.0) (>= X_1 0.5))))
(assert (<= (+ Y_0 (* 2.0 Y_1)) 0.125))
"""
PROPERTY2 = """(vnnlib-version <2.0>)
(declare-network N (declare-input X float32 [1, 2]) (declare-output Y float32 [1, 2]))
(assert (and (>= X[0, 0] 0.5) (<= X[0, 0] 1) (>= X[0, 1] 0) (<= X[0, 1] 1)))
(assert (or (<= X[0, 0] 0.75) (and (>= X[0, 1] 0.5) (<= Y[0, 0] Y[0, 1]))))
"""


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, **arrays)
    return stream.getvalue()


def picture(kind: str, grey: bool = False) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PICTURE[:, :, 0] if grey else PICTURE).save(stream, kind)
    return stream.getvalue()


def certificate(method: str) -> bytes:
    proof = lc.measure(NET, [0.3, 0.4], domain=(0, 1), method=method, certificate=True).certificate
    assert proof is not None
    names = {"alpha0", "axis0"}
    stream = Path(f"{method}.npz")
    proof.save(stream)
    with np.load(stream) as file:
        assert len(names & set(file.files)) == 1
    return stream.read_bytes()


def sparse_network() -> bytes:
    W = csr_array(NET.weights[0])
    parts = {f"W0_{part}": np.asarray(getattr(W, part)) for part in ("data", "indices", "indptr", "shape")}
    return npz(**parts, b0=NET.biases[0], W1=NET.weights[1], b1=NET.biases[1], input_shape=np.array([1, 2]))


def convolution() -> onnx.ModelProto:
    body = """z = Conv<pads=[1,1,1,1], strides=[2,2]>(x, W, b); r = Relu(z); p = MaxPool<kernel_shape=[2,2]>(r);
        f = Flatten(p); g = Gemm<transB=1>(f, V, c); s = Softmax(g); y = Reshape(s, k)"""
    constants = {"W": (2, 3, 3, 3), "b": (2,), "V": (2, 2), "c": (2,), "k": np.array([1, 2])}
    return build(body, (1, 3, 4, 4), **constants)


def external(folder: Path) -> tuple[bytes, bytes]:
    """The model, and the file of its weights."""
    onnx.save_model(
        build("z = Gemm(x, W); y = Relu(z)", (1, 4), W=(4, 3)),
        folder / "external.onnx",
        save_as_external_data=True,
        location="weights",
        size_threshold=0,
    )
    return (folder / "external.onnx").read_bytes(), (folder / "weights").read_bytes()


def checked(path: Path) -> object:
    return lc.check(NET, load_certificate(path))


def labelled(path: Path) -> object:
    points = path.with_name("points.npy")
    np.save(points, X)
    return load_dataset(points, labels=path)


def idx(array: Any) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, bytes, Read]]:
    """The name of a file, its content, its reader."""
    folder = tmp_path_factory.mktemp("formats")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        trees = {method: certificate(method) for method in ("adaptive", "input-split")}
    NET.save(folder / "net.npz")
    model, weights = external(folder)
    (folder / "array.npy").write_bytes(b"")
    np.save(folder / "array.npy", X)
    np.save(folder / "labels.npy", Y)
    table = "a,b,label\n" + "".join(f"{a:g},{b:g},{k}\n" for (a, b), k in zip(X[:, :2], Y, strict=True))
    images = idx(np.arange(32, dtype=np.uint8).reshape(2, 4, 4))

    def with_other(other: str, content: bytes) -> Read:
        def read(path: Path) -> object:
            path.with_name(other).write_bytes(content)
            return lc.load(path.with_name("external.onnx"))

        return read

    return {
        "certificate": ("c.npz", trees["adaptive"], checked),
        "box certificate": ("c.npz", trees["input-split"], checked),
        "network": ("n.npz", (folder / "net.npz").read_bytes(), lc.load),
        "compressed network": ("n.npz", npz(True, **NET.arrays()), lc.load),
        "sparse network": ("n.npz", sparse_network(), lc.load),
        "onnx": ("n.onnx", convolution().SerializeToString(), lc.load),
        "onnx with a second file": ("external.onnx", model, with_other("weights", weights)),
        "second file of onnx": ("weights", weights, with_other("external.onnx", model)),
        "onnx.gz": ("n.onnx.gz", gzip.compress(convolution().SerializeToString()), lc.load),
        "inputs": ("x.npz", npz(X=X, y=Y), load_inputs),
        "compressed inputs": ("x.npz", npz(True, X=X, y=Y), load_dataset),
        "npy": ("x.npy", (folder / "array.npy").read_bytes(), load_dataset),
        "idx": ("x-idx3-ubyte", images, load_dataset),
        "idx.gz": ("x.gz", gzip.compress(images), load_dataset),
        "csv": ("x.csv", table.encode(), load_dataset),
        "labels as text": ("y.txt", "".join(f"{k}\n" for k in Y).encode(), labelled),
        "labels as npy": ("y.npy", (folder / "labels.npy").read_bytes(), labelled),
        "png": ("x.png", picture("png"), load_dataset),
        "jpeg": ("x.jpg", picture("jpeg", grey=True), load_dataset),
        "gif": ("x.gif", picture("gif"), load_dataset),
        "bmp": ("x.bmp", picture("bmp"), load_dataset),
        "vnnlib 1": ("p.vnnlib", PROPERTY.encode(), load_spec),
        "vnnlib 2": ("p.vnnlib", PROPERTY2.encode(), load_spec),
        "vnnlib.gz": ("p.vnnlib.gz", gzip.compress(PROPERTY.encode()), load_spec),
    }


NAMES = [
    *("certificate", "box certificate", "network", "compressed network", "sparse network", "onnx", "onnx.gz"),
    *("onnx with a second file", "second file of onnx", "inputs", "compressed inputs", "npy", "idx", "idx.gz", "csv"),
    *("labels as text", "labels as npy", "png", "jpeg", "gif", "bmp", "vnnlib 1", "vnnlib 2", "vnnlib.gz"),
]


def mutations(data: bytes, seed: str) -> Iterator[bytes]:
    """Cut off, bytes changed, bits flipped, pieces removed, repeated or moved; inside the members of a zip file too."""
    rng = random.Random(seed)
    zipped = data[:2] == b"PK"
    for _ in range(TIMES):
        yield _inside(data, rng) if zipped and rng.random() < 0.5 else _mutated(data, rng)


def _mutated(data: bytes, rng: random.Random) -> bytes:
    new, kind = bytearray(data), rng.randrange(7)
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + 40)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        for _ in range(rng.randint(1, 5)):
            new[rng.randrange(len(new))] = rng.randrange(256)
    elif kind in (2, 3):
        for _ in range(rng.randint(1, 3)):
            new[rng.randrange(len(new))] ^= 1 << rng.randrange(8)
    elif kind == 4:
        del new[a:b]
    elif kind == 5:
        new[a:a] = data[a:b] * rng.randint(1, 3)
    else:
        new[a:b] = rng.choice((b"\xff", b"\x00", b"\x7f", b"9", b"(", b"-")) * (b - a)
    return bytes(new)


def _inside(data: bytes, rng: random.Random) -> bytes:
    """A member changed, with a checksum that fits."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    content = members[name]
    start = content[:128] if rng.random() < 0.5 else content  # the header of an array, or all of it
    members[name] = _mutated(start, rng) + content[len(start) :]
    return zipped(members)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tried(read: Read, path: Path, content: bytes) -> str:
    """'read', or the kind of error; anything but an error meant for users gets through."""
    path.write_bytes(content)
    try:
        read(path)
    except LayerCertError as error:
        assert str(error).strip() and not str(error).endswith("()"), str(error)
        return type(error).__name__
    return "read"


@pytest.mark.parametrize("name", NAMES)
def test_damage_of_every_kind(name: str, formats: dict[str, tuple[str, bytes, Read]], tmp_path: Path) -> None:
    file, data, read = formats[name]
    path = tmp_path / file
    assert tried(read, path, data) == "read"
    seen = {tried(read, path, mutated) for mutated in mutations(data, name)}
    assert seen - {"read"}  # some were found out, whatever the format


def test_no_format_is_forgotten(formats: dict[str, tuple[str, bytes, Read]]) -> None:
    assert sorted(formats) == sorted(NAMES)


HEADERS = [
    "{'descr': (",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }",
    "{'descr': 'O', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1," * 3,
    "{'descr': [('a','<f8')], 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (10**9,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (0,100000000000000000000), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (0," + "9999999999999999999," * 9 + "), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 70 + "), }",
    "{'descr': '<M8[D]', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<c16', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '|V0', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<U0', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': ',', 'fortran_order': False, 'shape': (3,), }",
    "{'descr': ('<f8',(1,)*40), 'fortran_order': False, 'shape': (3,), }",
    "{'descr': '<f8', 'fortran_order': 'yes', 'shape': (3,), }",
    "{'descr': '<f8', 'shape': (3,), }",
    "(" * 200,
    "'" * 3,
    "\x00\x01",
    " x\n y\n\tz",
    "",
]


@pytest.mark.parametrize("name", ["certificate", "network", "sparse network", "inputs"])
def test_hostile_headers(name: str, formats: dict[str, tuple[str, bytes, Read]], tmp_path: Path) -> None:
    """As numpy reads them these were SyntaxError, TokenError, OverflowError, MemoryError."""
    file, data, read = formats[name]
    members = members_of(data)
    for member in members:
        for header in HEADERS:
            for version, form in ((1, "<H"), (2, "<I")):
                text = header.encode("latin1") + b"\n"
                array = b"\x93NUMPY" + bytes([version, 0]) + struct.pack(form, len(text)) + text + bytes(24)
                assert tried(read, tmp_path / file, zipped(members | {member: array})) != "read", (member, header)


@pytest.mark.parametrize("name", ["certificate", "network", "inputs"])
def test_other_compressions_are_not_even_tried(
    name: str, formats: dict[str, tuple[str, bytes, Read]], tmp_path: Path
) -> None:
    """A damaged lzma stream used to leak LZMAError, and may ask for gigabytes."""
    file, data, read = formats[name]
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with pytest.raises(LayerCertError, match="compressed in a way that numpy does not use"):
            (tmp_path / file).write_bytes(zipped(members_of(data), method))
            read(tmp_path / file)


def test_a_member_that_is_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for name, content in [*members_of(npz(**NET.arrays())).items(), ("W0.npy", b"other")]:
            archive.writestr(name, content)
    with pytest.raises(ModelError, match=r"W0 cannot be read, the file is damaged; .* \(it is there twice\)"):
        lc.load(path)


class Evil:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('a pickle was executed')",))


@pytest.mark.parametrize("name", ["certificate", "network", "inputs", "npy"])
def test_pickles_are_never_executed(name: str, formats: dict[str, tuple[str, bytes, Read]], tmp_path: Path) -> None:
    file, data, read = formats[name]
    stream = io.BytesIO()
    np.save(stream, np.array([Evil()], dtype=object), allow_pickle=True)
    contents = [pickle.dumps(Evil()), stream.getvalue()]
    if data[:2] == b"PK":
        members = members_of(data)
        contents += [zipped(members | {member: content}) for member in members for content in contents[:2]]
    for content in contents:
        assert tried(read, tmp_path / file, content) != "read"


def bomb(name: str, mebibytes: int) -> bytes:
    """Zeros, packed to a thousandth."""
    stream = io.BytesIO()
    header = io.BytesIO()
    shape = (mebibytes, 1 << 17)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as member:
        member.write(header.getvalue())
        for _ in range(mebibytes):
            member.write(bytes(1 << 20))
    return stream.getvalue()


def test_bombs_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layercert.system.npz.SMALL", 4 << 20)
    monkeypatch.setattr("layercert.system.gz.SMALL", 4 << 20)
    path = tmp_path / "bomb.npz"
    path.write_bytes(bomb("W0.npy", 5))
    with pytest.raises(ModelError, match="it would unpack to more than 4 MiB"):
        lc.load(path)
    path.write_bytes(bomb("X.npy", 5))
    with pytest.raises(InputError, match="it would unpack to more than 4 MiB"):
        load_inputs(path)
    path.write_bytes(bomb("X.npy", 3))
    assert load_inputs(path).X.shape == (3, 1 << 17)
    path = tmp_path / "bomb-idx.gz"
    path.write_bytes(gzip.compress(idx(np.zeros((5, 1 << 20), np.uint8))))
    with pytest.raises(InputError, match="unpacks to more than 4 MiB"):
        load_dataset(path)


def test_a_size_that_lies_is_found_out(tmp_path: Path) -> None:
    """The directory announces 10 bytes for a member of a mebibyte."""
    content = bytearray(bomb("W0.npy", 1))
    at = content.rindex(b"PK\x01\x02") + 24  # where the directory says how large the member is
    assert content[at : at + 4] == struct.pack("<I", (1 << 20) + 128)
    content[at : at + 4] = struct.pack("<I", 10)
    (tmp_path / "n.npz").write_bytes(content)
    with pytest.raises(ModelError, match="W0 cannot be read, the file is damaged"):
        lc.load(tmp_path / "n.npz")


@pytest.mark.parametrize(
    ("body", "shape", "constants"),
    [
        ("y = Relu(x)", (1, 2**31, 2**31), {}),
        ("y = Expand(x, s)", (1, 4), {"s": np.array([2**40, 4])}),
        ("z = ConstantOfShape(s); y = Add(x, z)", (1, 4), {"s": np.array([2**40, 4])}),
        ("y = Pad(x, s)", (1, 4), {"s": np.array([0, 2**40, 0, 0])}),
        ("z = Pad(s, p); y = Add(x, z)", (1, 4), {"s": np.zeros((1, 4), np.float32), "p": np.array([0, 2**40, 0, 0])}),
        ("z = Conv<pads=[1073741824,0,0,0]>(x, W); y = Flatten(z)", (1, 1, 4, 4), {"W": (1, 1, 2, 2)}),
        ("z = MaxPool<kernel_shape=[1,1], pads=[1073741824,0,0,0]>(x); y = Flatten(z)", (1, 1, 4, 4), {}),
        ("a = Unsqueeze(x, k); y = Add(a, z)", (1, 2**14), {"k": np.array([2]), "z": np.zeros((1, 2**14), np.float32)}),
    ],
)  # fmt: skip
def test_absurd_sizes_are_refused_before_memory_is_asked_for(
    tmp_path: Path, body: str, shape: tuple[int, ...], constants: dict[str, Any]
) -> None:
    onnx.save(build(body, shape, **constants), tmp_path / "n.onnx")
    started = time.process_time()
    with pytest.raises(ModelError, match=r"numbers, more than the \d+ that are supported"):
        lc.load(tmp_path / "n.onnx")
    assert time.process_time() - started < 5.0  # not after filling the memory


def test_a_certificate_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = lc.measure(NET, [0.3, 0.4], domain=(0, 1), certificate=True).certificate
    assert proof is not None
    path = tmp_path / "c.npz"
    proof.save(path)
    before = path.read_bytes()

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(InputError, match=r"cannot write the certificate to '.*c\.npz': No space left on device"):
        proof.save(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
