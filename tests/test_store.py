"""The store: same key, same bytes; LRU; damage is a miss; several processes at once."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image

from t2x.errors import T2XError
from t2x.generators.identity import SCORING_LIBRARIES, versions
from t2x.media import quantize
from t2x.store import Store, make_key, media_key, score_key


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def files(store: Store) -> list[Path]:
    return sorted(path for path in (store.root / "objects").rglob("*") if path.is_file())


def brightness(media: torch.Tensor) -> torch.Tensor:
    """A reward that any change of any pixel changes."""
    weights = noise(*media.shape[1:], seed=9)
    return (media * weights).sum((1, 2, 3))


def test_media_come_back_as_quantized(tmp_path):
    store = Store(tmp_path)
    for key, media in {"picture": noise(3, 8, 6), "video": noise(5, 3, 8, 6)}.items():
        assert store.get_media(key) is None
        store.put_media(key, media)
        assert torch.equal(store.get_media(key), quantize(media.unsqueeze(0))[0])


def test_a_score_of_stored_media_equals_a_fresh_one(tmp_path):
    store = Store(tmp_path)
    fresh = quantize(noise(4, 3, 16, 16))
    for i, picture in enumerate(fresh):
        store.put_media(str(i), picture)
    again = torch.stack([Store(tmp_path).get_media(str(i)) for i in range(4)])
    assert torch.equal(brightness(again), brightness(fresh))


def test_the_same_media_are_one_file_and_the_same_bytes(tmp_path):
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    digests = {store.put_media(key, noise(3, 8, 8)) for key in ("x", "y", "x")}
    digests.add(other.put_media("z", noise(3, 8, 8)))
    assert len(digests) == 1 and len(files(store)) == 1
    assert files(store)[0].read_bytes() == files(other)[0].read_bytes()
    assert store.digest("x") in digests and store.digest("none") is None


def test_results_keep_numbers_exactly_and_nan_stays_nan(tmp_path):
    store = Store(tmp_path)
    store.put_result("a", {"score": 0.1 + 0.2, "nan": math.nan, "text": "猫", "list": [1, None]})
    result = store.get_result("a")
    assert result["score"] == 0.1 + 0.2 and math.isnan(result["nan"])
    assert result["text"] == "猫" and result["list"] == [1, None]
    store.put_result("a", {"score": 1.0})
    assert store.get_result("a") == {"score": 1.0} and len(files(store)) == 1


def test_the_least_recently_used_goes_first(tmp_path):
    size = len("x" * 1000) + len('{"t": ""}')
    store = Store(tmp_path, max_bytes=3 * size)
    for letter in "abc":
        store.put_result(letter, {"t": letter * 1000})
    assert store.size() == 3 * size
    assert store.get_result("a") is not None  # now b is the oldest
    store.put_result("d", {"t": "d" * 1000})
    assert [letter for letter in "abcd" if store.get_result(letter) is None] == ["b"]
    assert store.size() == 3 * size and len(files(store)) == 3


def test_a_shared_file_stays_while_one_key_needs_it(tmp_path):
    store = Store(tmp_path, max_bytes=1500)
    store.put_result("a", {"t": "s" * 600})
    store.put_result("b", {"t": "s" * 600})
    assert len(files(store)) == 1
    store.put_result("c", {"t": "c" * 1000})  # both must go before the file goes
    assert store.get_result("c") is not None and len(files(store)) == 1
    store = Store(tmp_path / "other", max_bytes=1500)
    store.put_result("a", {"t": "s" * 600})
    store.put_result("b", {"t": "s" * 600})
    store.put_result("a", {"t": "now another"})
    assert store.get_result("b") == {"t": "s" * 600}


def test_what_can_never_fit_is_refused_and_drives_nothing_out(tmp_path):
    store = Store(tmp_path, max_bytes=1000)
    store.put_result("a", {"t": "a" * 500})
    with pytest.raises(T2XError, match=r"more than the whole store .* give it a larger max_bytes"):
        store.put_result("b", {"t": "b" * 1000})
    assert store.get_result("a") is not None and store.get_result("b") is None


def test_the_size_is_kept_without_counting(tmp_path, monkeypatch):
    """The sum of what is on disk, though no query adds it up."""
    store = Store(tmp_path, max_bytes=5000)
    for i in range(40):
        store.put_result(f"{i % 25}", {"t": "x" * (37 * i % 900)})
        store.put_result("same", {"t": "shared"})
        assert store.size() == sum(path.stat().st_size for path in files(store)) <= 5000
    assert Store(tmp_path).size() == store.size()
    seen: list[str] = []
    opened = sqlite3.connect

    def traced(*args, **options):
        db = opened(*args, **options)
        db.set_trace_callback(seen.append)
        return db

    monkeypatch.setattr(sqlite3, "connect", traced)
    store.put_result("new", {"t": "y" * 900})
    assert seen and not any("sum(" in text.lower() for text in seen)


def test_a_file_stored_anew_meanwhile_is_a_hit(tmp_path, monkeypatch):
    """Between a failed read and the decision to forget it, another process stores the same file."""
    store = Store(tmp_path)
    store.put_media("a", noise(3, 8, 8))
    (path,) = files(store)
    path.unlink()
    read = Store._read

    def late(self, row):
        monkeypatch.setattr(Store, "_read", read)
        assert read(self, row) is None
        Store(tmp_path).put_media("b", noise(3, 8, 8))  # the same bytes
        return None

    monkeypatch.setattr(Store, "_read", late)
    assert store.get_media("a") is not None
    assert store.get_media("b") is not None and files(store) == [path]


def test_an_entry_dropped_meanwhile_is_a_miss(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.put_result("a", {"t": "x"})
    read = Store._read

    def late(self, row):
        monkeypatch.setattr(Store, "_read", read)
        store.put_result("a", {"t": "y"})
        return None

    monkeypatch.setattr(Store, "_read", late)
    assert store.get_result("a") == {"t": "y"}


def test_a_video_may_have_more_pixels_than_pillow_opens(tmp_path, monkeypatch):
    store, video = Store(tmp_path), noise(40, 3, 8, 6)
    store.put_media("a", video)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(Image.DecompressionBombError):
        Image.open(files(store)[0])
    assert torch.equal(store.get_media("a"), quantize(video.unsqueeze(0))[0])


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "other"])
def test_damage_is_a_miss_and_heals(tmp_path, damage):
    store = Store(tmp_path)
    store.put_media("a", noise(3, 8, 8))
    (path,) = files(store)
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:-9], "empty": b"", "other": data[::-1]}[damage])
    assert store.get_media("a") is None and store.size() == 0
    store.put_media("a", noise(3, 8, 8))
    assert torch.equal(store.get_media("a"), quantize(noise(1, 3, 8, 8))[0])


WORKER = """
import sys
from t2x.store import Store
store = Store(sys.argv[1], max_bytes=20_000)
who = int(sys.argv[2])
for i in range(60):
    for name in (f"shared{i % 7}", f"own{who}-{i}"):
        want = {"t": (name * 200)[:1500]}
        got = store.get_result(name)
        assert got in (None, want), (name, got)
        store.put_result(name, want)
print("done")
"""


def test_several_processes_share_a_store(tmp_path):
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    workers = [
        subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for i in range(3)
    ]
    for worker in workers:
        out, error = worker.communicate(timeout=120)
        assert out == b"done\n" and worker.returncode == 0, error.decode()
    store = Store(tmp_path, max_bytes=20_000)
    assert 0 < store.size() <= 20_000
    assert sum(path.stat().st_size for path in files(store)) == store.size()


def fingerprint(**changes: object) -> dict[str, object]:
    return {"model_id": "m", "revision": "1", "settings": {"steps": 4}, "dtype": "f", **changes}


def test_a_key_holds_everything_that_changes_a_picture():
    keys = [
        media_key("a", fingerprint=fingerprint(), seed=0),
        media_key("a ", fingerprint=fingerprint(), seed=0),
        media_key("\u00e9", fingerprint=fingerprint(), seed=0),
        media_key("e\u0301", fingerprint=fingerprint(), seed=0),  # looks the same, other bytes
        media_key("a", fingerprint=fingerprint(), seed=1),
        media_key("a", fingerprint=fingerprint(), seed=0, negative="b"),
        media_key("a", fingerprint=fingerprint(revision="2"), seed=0),
        media_key("a", fingerprint=fingerprint(settings={"steps": 5}), seed=0),
        media_key("\udc80", fingerprint=fingerprint(), seed=0),  # text that is no valid Unicode
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == media_key("a", fingerprint=dict(reversed(fingerprint().items())), seed=0)


def test_a_full_disk_is_one_line_and_costs_nothing_that_is_there(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.put_media("a", torch.zeros(3, 8, 8))

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("t2x.store._write", full)
    with pytest.raises(T2XError, match="disk is full; free some space there"):
        store.put_media("b", torch.ones(3, 8, 8))
    monkeypatch.undo()
    assert store.get_media("a") is not None and store.get_media("b") is None


def test_score_keys_depend_on_prompt_media_and_reward(monkeypatch):
    def key(prompt: str = "a", media: str = "0", **reward: object) -> str:
        return score_key(prompt, media_digest=media, reward={"name": "clip", **reward})

    keys = {key(), key("b"), key(media="1"), key(name="hps"), key(revision="2"), make_key("score")}
    assert len(keys) == 6 and key() in keys
    now = versions(SCORING_LIBRARIES)
    assert {"open_clip", "PIL"} <= now.keys()  # they read the picture and score it
    for name in now:
        changed = {**now, name: "0"}
        monkeypatch.setattr("t2x.store.versions", lambda names, found=changed: found)
        assert key() not in keys


def test_bad_arguments_are_errors(tmp_path):
    with pytest.raises(ValueError, match="positive"):
        Store(tmp_path, max_bytes=0)
    with pytest.raises(ValueError, match="store takes"):
        Store(tmp_path).put_media("a", torch.zeros(1, 3, 3, 2, 2))
    (tmp_path / "file").touch()
    with pytest.raises(T2XError, match="cannot make the store"):
        Store(tmp_path / "file")


def test_several_may_make_a_store_at_the_same_time(tmp_path):
    """SQLite refuses at once to switch the journal of a database that others are switching."""
    for number in range(20):
        start = threading.Barrier(8)

        def make(folder=tmp_path / str(number), start=start):
            start.wait()
            return Store(folder).size()

        with ThreadPoolExecutor(8) as pool:
            assert [made.result() for made in [pool.submit(make) for _ in range(8)]] == [0] * 8
