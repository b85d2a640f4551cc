"""Pictures: 8 bits, round trips, every mode of file, and files that are no pictures."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch
from PIL import Image

from t2x.errors import MissingDependencyError, T2XError
from t2x.media import (
    from_pil,
    load_media,
    load_picture,
    quantize,
    save_png,
    save_video,
    spaced,
    to_pil,
)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_quantize_gives_multiples_of_one_in_255_and_is_idempotent():
    media = quantize(noise(2, 3, 8, 9) * 1.4 - 0.2)
    levels = media * 255
    assert media.dtype == torch.float32 and media.min() == 0 and media.max() == 1
    assert torch.equal(levels.round().div(255), media)
    assert torch.equal(quantize(media), media)


def test_quantize_rounds_to_the_nearest_level():
    """0.4 / 255 -> 0, 0.6 / 255 -> 1 / 255, 1.5 -> 1, -1 -> 0."""
    values = torch.tensor([0.4 / 255, 0.6 / 255, 1.5, -1.0]).expand(1, 3, 1, 4)
    assert torch.equal(quantize(values)[0, 0, 0], torch.tensor([0, 1 / 255, 1, 0]))


def test_a_file_gives_back_what_quantize_gave(tmp_path):
    picture = noise(1, 3, 17, 13)
    save_png(picture, tmp_path / "new" / "a.png", text={"prompt": "猫 😀 <b>", "seed": "1"})
    assert torch.equal(load_picture(tmp_path / "new" / "a.png"), quantize(picture))
    assert Image.open(tmp_path / "new" / "a.png").text["prompt"] == "猫 😀 <b>"


def test_half_precision_goes_the_same_way(tmp_path):
    picture = noise(1, 3, 8, 8).bfloat16()
    save_png(picture, tmp_path / "a.png")
    assert torch.equal(load_picture(tmp_path / "a.png"), quantize(picture))


def test_videos_become_frames_in_order_and_sizes_may_differ():
    video = quantize(noise(2, 3, 3, 4, 5))
    frames = to_pil(video)
    assert len(frames) == 6 and frames[0].size == (5, 4)
    assert torch.equal(from_pil(frames), video.flatten(0, 1))
    mixed = [quantize(noise(1, 3, 4, 5)), quantize(noise(1, 3, 6, 5))]
    back = from_pil(to_pil(mixed))
    assert isinstance(back, list) and all(map(torch.equal, back, mixed))
    assert all(map(torch.equal, quantize(mixed), mixed))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_an_error(value):
    with pytest.raises(ValueError, match="NaN or infinity"):
        quantize(torch.full((1, 3, 2, 2), value))


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 4, 4, 4), (1, 4, 4, 3)])
def test_other_shapes_are_an_error(shape):
    with pytest.raises(ValueError, match="must be"):
        to_pil(torch.zeros(shape))
    with pytest.raises(ValueError, match="one picture"):
        save_png(torch.zeros(2, 3, 4, 4), "a.png")
    with pytest.raises(ValueError, match="at least one"):
        from_pil([])


def test_every_mode_becomes_rgb(tmp_path):
    red = Image.new("RGB", (4, 3), (255, 0, 0))
    files = {
        "palette.png": red.convert("P", palette=Image.Palette.ADAPTIVE),
        "palette.gif": red.convert("P"),
        "cmyk.tif": red.convert("CMYK"),
        "red.webp": red,
    }
    for name, image in files.items():
        image.save(tmp_path / name, **({"lossless": True} if name.endswith("webp") else {}))
        pixels = load_picture(tmp_path / name)
        assert pixels.shape == (1, 3, 3, 4) and pixels.dtype == torch.float32, name
        assert torch.allclose(pixels[0, :, 0, 0], torch.tensor([1.0, 0, 0]), atol=2 / 255), name


def test_grey_and_bilevel_pictures(tmp_path):
    Image.new("L", (2, 2), 51).save(tmp_path / "grey.png")
    assert torch.equal(load_picture(tmp_path / "grey.png"), torch.full((1, 3, 2, 2), 0.2))
    Image.new("1", (2, 2), 1).save(tmp_path / "bit.png")
    assert torch.equal(load_picture(tmp_path / "bit.png"), torch.ones(1, 3, 2, 2))


def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path):
    """65535 -> 1, 257 k -> k / 255, 0 -> 0."""
    values = np.array([[0, 257 * 51, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert torch.equal(load_picture(tmp_path / "deep.png")[0, 1], torch.tensor([[0, 0.2, 1]]))


def test_transparent_pictures_are_laid_on_white(tmp_path):
    """Black at alpha 102 / 255 = 0.4 on white gives 0.6."""
    Image.new("RGBA", (1, 1), (0, 0, 0, 102)).save(tmp_path / "a.png")
    assert torch.allclose(load_picture(tmp_path / "a.png"), torch.tensor(0.6), atol=1e-6)
    Image.new("LA", (1, 1), (0, 0)).save(tmp_path / "la.png")
    assert torch.equal(load_picture(tmp_path / "la.png"), torch.ones(1, 3, 1, 1))
    palette = Image.new("P", (1, 1), 0)
    palette.putpalette([255, 0, 0] * 256)
    palette.save(tmp_path / "p.png", transparency=0)
    assert torch.equal(load_picture(tmp_path / "p.png"), torch.ones(1, 3, 1, 1))


def test_the_camera_s_orientation_is_obeyed(tmp_path):
    """Orientation 6: the stored top row is the right column of what was seen."""
    image = Image.new("RGB", (2, 1))
    image.putpixel((0, 0), (255, 255, 255))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    pixels = load_picture(tmp_path / "turned.png")
    assert pixels.shape == (1, 3, 2, 1) and pixels[0, 0].flatten().tolist() == [1, 0]


def test_files_that_are_no_pictures_are_said_in_one_line(tmp_path):
    (tmp_path / "text.png").write_text("I am a prompt")
    (tmp_path / "empty.png").touch()
    save_png(noise(1, 3, 64, 64), tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "folder.png").mkdir()
    Image.new("F", (2, 2), 0.5).save(tmp_path / "float.tif")
    for name in ("text.png", "empty.png", "cut.png", "folder.png", "float.tif", "missing.png"):
        with pytest.raises(T2XError, match=name) as error:
            load_picture(tmp_path / name)
        assert "\n" not in str(error.value)


def test_a_picture_with_absurdly_many_pixels_is_refused(tmp_path, monkeypatch):
    save_png(torch.zeros(3, 40, 40), tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(T2XError, match="too many pixels"):
        load_picture(tmp_path / "bomb.png")


LEVELS = (0, 51, 102, 204)


@pytest.mark.parametrize("suffix", ["gif", "png", "webp"])
def test_animations_are_videos(tmp_path, suffix):
    """Frames that hold only what changed are given whole."""
    frames = [Image.new("RGB", (8, 6), (v, v, v)) for v in LEVELS]
    for frame in frames:
        frame.putpixel((0, 0), (255, 255, 255))
    path = tmp_path / f"a.{suffix}"
    options = {"lossless": True} if suffix == "webp" else {}
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=50, **options)
    video = load_media(path)
    assert video.shape == (1, 4, 3, 6, 8) and video.dtype == torch.float32
    assert (video[0, :, 0, 3, 3] * 255).round().tolist() == list(LEVELS)
    assert (video[0, :, 0, 0, 0] == 1).all()
    few = load_media(path, max_frames=2)
    assert torch.equal(few, video[:, [0, 3]])


def test_a_still_picture_is_a_picture(tmp_path):
    picture = torch.rand(1, 3, 5, 4).mul(255).round() / 255
    save_png(picture, tmp_path / "a.png")
    assert torch.equal(load_media(tmp_path / "a.png"), picture)
    Image.new("RGB", (4, 3)).save(tmp_path / "one.gif", save_all=True)
    assert load_media(tmp_path / "one.gif").shape == (1, 3, 3, 4)


def test_an_animation_that_breaks_off_is_one_line(tmp_path):
    frames = [Image.effect_noise((32, 32), 50).convert("RGB") for _ in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    cut = tmp_path / "cut.gif"
    cut.write_bytes((tmp_path / "a.gif").read_bytes()[:1800])
    for bad in (cut, tmp_path / "gone.gif", tmp_path / "gone.mp4"):
        with pytest.raises(T2XError) as error:
            load_media(bad)
        assert "\n" not in str(error.value) and bad.name in str(error.value)


def test_spaced_keeps_the_ends():
    assert spaced(5, None) == spaced(5, 9) == [0, 1, 2, 3, 4]
    assert spaced(9, 3) == [0, 4, 8] and spaced(9, 1) == [4] and spaced(100, 2) == [0, 99]


def test_a_video_file_without_its_reader_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    (tmp_path / "a.mp4").write_bytes(b"x")
    with pytest.raises(MissingDependencyError, match=r"t2x\[video\]"):
        load_media(tmp_path / "a.mp4")


@pytest.mark.extra("video")
def test_a_video_is_written_and_read_again(tmp_path):
    import av

    levels = torch.tensor([0.2, 0.5, 0.8]).reshape(3, 1, 1, 1).expand(3, 3, 16, 32)
    save_video(levels, tmp_path / "new" / "a.mp4", fps=12)
    assert (load_media(tmp_path / "new" / "a.mp4") - levels).abs().max() < 0.02
    with av.open(str(tmp_path / "new" / "a.mp4")) as file:
        stream = file.streams.video[0]
        assert (stream.average_rate, stream.codec_context.name) == (12, "h264")
    with pytest.raises(ValueError, match=r"one video \(F, 3, H, W\)"):
        save_video(torch.zeros(1, 2, 3, 4, 4).expand(2, 2, 3, 4, 4), tmp_path / "b.mp4")


def test_a_video_that_mp4_can_not_hold_is_refused(tmp_path, monkeypatch):
    with pytest.raises(T2XError, match=r"even sides .* got 15x16 pixels at 8"):
        save_video(torch.zeros(2, 3, 15, 16), tmp_path / "a.mp4")
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(MissingDependencyError, match=r"t2x\[video\]"):
        save_video(torch.zeros(2, 3, 16, 16), tmp_path / "a.mp4")


@pytest.mark.extra("video")
def test_a_video_file_gives_its_frames(tmp_path):
    import av

    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg4", rate=8)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for level in LEVELS:
            pixels = np.full((16, 32, 3), level, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode())
    video = load_media(path)
    assert video.shape == (1, 4, 3, 16, 32)
    assert video.mean((0, 2, 3, 4)).mul(255).tolist() == pytest.approx(LEVELS, abs=6)
    assert torch.equal(load_media(path, max_frames=2), video[:, [0, 3]])
    (tmp_path / "b.mp4").write_bytes(b"no video")
    with pytest.raises(T2XError, match="cannot read"):
        load_media(tmp_path / "b.mp4")


def test_a_damaged_exif_block_only_skips_the_turn(tmp_path, monkeypatch):
    path, exif = tmp_path / "a.jpg", Image.Exif()
    exif[0x0112] = 6  # orientation: turned by 90 degrees
    Image.new("RGB", (8, 4)).save(path, exif=exif)
    assert load_picture(path).shape == (1, 3, 8, 4)

    def parse(image):
        raise struct.error("required argument is not an integer")

    monkeypatch.setattr("PIL.ImageOps.exif_transpose", parse)
    assert load_picture(path).shape == load_media(path).shape == (1, 3, 4, 8)


@pytest.mark.parametrize(
    "error", [RuntimeError("no frame"), NotImplementedError("odd"), MemoryError(), IndexError("9")]
)
def test_whatever_a_decoder_raises_names_the_file(tmp_path, monkeypatch, error):
    def load(*arguments):
        raise error

    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    for read in (load_picture, load_media):
        with pytest.raises(T2XError, match=r"cannot read .*a\.png.* as a picture: \w"):
            read(tmp_path / "a.png")
