"""Input files: what is read, which points are chosen, and what is said about files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layercert import shipped
from layercert.errors import InputError
from layercert.io.inputs import load_inputs, parse_index

X = np.arange(12.0).reshape(4, 3)  # four points of three numbers
Y = np.array([0, 1, 0, 1])


def saved(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


class TestReading:
    def test_points_and_labels(self, tmp_path: Path) -> None:
        inputs = load_inputs(saved(tmp_path / "a.npz", X=X, y=Y))
        assert inputs.X.tolist() == X.tolist()
        assert inputs.y is not None and inputs.y.tolist() == [0, 1, 0, 1]
        assert inputs.index.tolist() == [0, 1, 2, 3]

    def test_chosen_points_keep_their_labels_and_positions(self, tmp_path: Path) -> None:
        inputs = load_inputs(saved(tmp_path / "a.npz", X=X, y=Y), "3,1")
        assert inputs.X.tolist() == [X[3].tolist(), X[1].tolist()]
        assert inputs.y is not None and inputs.y.tolist() == [1, 1]
        assert inputs.index.tolist() == [3, 1]

    def test_no_labels(self, tmp_path: Path) -> None:
        assert load_inputs(saved(tmp_path / "a.npz", X=X)).y is None
        assert load_inputs(saved(tmp_path / "b.npz", x=X)).X.shape == (4, 3)  # a small x will do

    def test_npy_of_one_point_and_of_several(self, tmp_path: Path) -> None:
        np.save(tmp_path / "one.npy", X[0])
        np.save(tmp_path / "all.npy", X)
        assert load_inputs(tmp_path / "one.npy").X.tolist() == [[0.0, 1.0, 2.0]]
        assert load_inputs(tmp_path / "all.npy").X.shape == (4, 3)

    def test_one_point_with_its_label(self, tmp_path: Path) -> None:
        inputs = load_inputs(saved(tmp_path / "a.npz", X=X[0], y=1))
        assert inputs.X.shape == (1, 3) and inputs.y is not None and inputs.y.tolist() == [1]

    def test_images_are_flattened_row_by_row(self, tmp_path: Path) -> None:
        images = np.arange(24).reshape(2, 1, 3, 4)
        assert load_inputs(saved(tmp_path / "a.npz", X=images)).X.tolist() == images.reshape(2, 12).tolist()

    @pytest.mark.parametrize("kind", ["float16", "float32", "uint8", "int64", "bool"])
    def test_numbers_of_any_kind_are_exact(self, tmp_path: Path, kind: str) -> None:
        points = np.array([[0, 1], [1, 1]]).astype(kind)
        read = load_inputs(saved(tmp_path / "a.npz", X=points)).X
        assert read.dtype == np.float64 and read.tolist() == points.astype(float).tolist()

    def test_shipped_digits(self) -> None:
        inputs = load_inputs(shipped.path("digits"))
        assert inputs.X.shape == (100, 784) and inputs.y is not None
        assert inputs.X.min() >= 0.0 and inputs.X.max() <= 1.0
        assert np.bincount(inputs.y).tolist() == [50, 50]


class TestRefusals:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no input file at '.*nothing\.npz'; expected \.npz with an array X"):
            load_inputs(tmp_path / "nothing.npz")
        with pytest.raises(InputError, match="no input file at"):
            load_inputs(tmp_path)  # a folder

    @pytest.mark.parametrize(
        "content",
        [b"", b"hello", b"PK\x03\x04 and then nothing", b"\x93NUMPY and then nothing", b"0.1, 0.2, 0.3\n"],
    )
    def test_not_numpy(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(
            InputError, match=r"'.*a\.npz' is not a \.npz or \.npy file of numbers, or a damaged one; save"
        ):
            load_inputs(tmp_path / "a.npz")

    @pytest.mark.parametrize("damage", ["cut off", "overwritten"])
    def test_a_damaged_archive(self, tmp_path: Path, damage: str) -> None:
        whole = bytearray(shipped.path("digits").read_bytes())
        middle = len(whole) // 3
        if damage == "cut off":
            whole = whole[:middle]
        else:
            whole[middle : middle + 40] = bytes(40)
        (tmp_path / "a.npz").write_bytes(whole)
        with pytest.raises(InputError, match="or a damaged one"):
            load_inputs(tmp_path / "a.npz")

    def test_pickles_are_never_loaded(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
        saved(tmp_path / "b.npz", X=np.array([{}], dtype=object))
        for name in ("a.npy", "b.npz"):
            with pytest.raises(InputError, match=r"is not a \.npz or \.npy file of numbers"):
                load_inputs(tmp_path / name)

    def test_no_array_x(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="has no array X; it holds images, labels"):
            load_inputs(saved(tmp_path / "a.npz", images=X, labels=Y))
        with pytest.raises(InputError, match="has no array X; it holds nothing"):
            load_inputs(saved(tmp_path / "b.npz"))

    def test_not_numbers(self, tmp_path: Path) -> None:
        for points in (np.array([["a"]]), np.array([[1j]])):
            with pytest.raises(InputError, match=r"the inputs in '.*' have type .*; expected numbers"):
                load_inputs(saved(tmp_path / "a.npz", X=points))

    @pytest.mark.parametrize("shape", [(0, 3), (0,), (3, 0)])
    def test_nothing_inside(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match=r"holds no inputs, its array has shape \("):
            load_inputs(saved(tmp_path / "a.npz", X=np.zeros(shape)))

    @pytest.mark.parametrize("labels", [[0, 1], [[0, 1, 0, 1]], [0.0, 1.0, 0.0, 1.0], ["a", "b", "c", "d"]])
    def test_labels_that_do_not_fit(self, tmp_path: Path, labels: list[object]) -> None:
        with pytest.raises(
            InputError, match=r"labels y in '.*' must be 4 whole numbers, one per input; got .* of shape"
        ):
            load_inputs(saved(tmp_path / "a.npz", X=X, y=np.array(labels)))


class TestIndex:
    @pytest.mark.parametrize(
        ("text", "chosen"),
        [
            (None, [0, 1, 2, 3, 4]),
            ("2", [2]),
            ("-1", [4]),
            ("1:3", [1, 2]),
            (":2", [0, 1]),
            ("3:", [3, 4]),
            ("0:5:2", [0, 2, 4]),
            ("::-1", [4, 3, 2, 1, 0]),
            ("1:100", [1, 2, 3, 4]),
            ("3,0,4", [3, 0, 4]),
            ("0:2,4", [0, 1, 4]),
            (" 1 , 2 ", [1, 2]),
        ],
    )
    def test_what_may_be_written(self, text: str | None, chosen: list[int]) -> None:
        assert parse_index(text, 5).tolist() == chosen

    @pytest.mark.parametrize("text", ["5", "-6", "0,9"])
    def test_out_of_range(self, text: str) -> None:
        with pytest.raises(InputError, match=r"index -?\d is out of range: there are 5 inputs, 0\.\.4"):
            parse_index(text, 5)

    @pytest.mark.parametrize("text", ["a", "", "1,,2", "1:2:3:4", "1:2:0", "1.5", "1-3"])
    def test_unreadable(self, text: str) -> None:
        with pytest.raises(
            InputError, match=f"cannot read the index {text!r}; expected e.g. 7, 0:10, 0:100:5 or 3,5,8"
        ):
            parse_index(text, 5)

    def test_nothing_chosen(self) -> None:
        with pytest.raises(InputError, match="the index '3:1' chooses none of the 5 inputs"):
            parse_index("3:1", 5)


class TestShippedNames:
    def test_every_name_is_a_file(self) -> None:
        names = shipped.names()
        assert "digits" in names and "mnist17_l1_2x20" in names
        assert all(shipped.path(name).is_file() for name in names)

    def test_a_file_of_the_same_name_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert shipped.path("digits").is_absolute()
        (tmp_path / "digits").write_text("mine")
        assert shipped.path("digits") == Path("digits")

    def test_other_names_are_paths(self) -> None:
        assert shipped.path("folder/digits") == Path("folder/digits")
        assert shipped.path("model.onnx") == Path("model.onnx")
