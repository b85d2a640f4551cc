// The box on the picture of the Edit tab that an edit stays inside. Its value is "" for everywhere,
// else LEFT,TOP,RIGHT,BOTTOM in 0 to 1. It is drawn with a pointer, or typed in percent.
const form = element.querySelector(".t2x-region");
const [everywhere, inside] = form.querySelectorAll("input[type=radio]");
const sides = [...form.querySelectorAll("input[type=number]")];
const layer = document.createElement("div");
layer.className = "t2x-region-layer";
layer.innerHTML = "<div></div>";
const mark = layer.firstElementChild;
const least = 0.03, reach = 18; // of a side; pixels around a corner
let box = null, drag = null, image = null;

const read = text => {
  const found = (text || "").split(",").map(Number);
  return found.length === 4 && found.every(Number.isFinite) ? found : null;
};
const written = value => (value ? value.map(side => side.toFixed(3)).join(",") : "");
const clamp = value => Math.min(1, Math.max(0, value));
const ordered = ([a, b, c, d]) => [Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)];

// Where the picture is inside its frame, which is larger in one direction.
const area = () => {
  const frame = image.closest("#edit-picture").getBoundingClientRect();
  const outer = image.getBoundingClientRect();
  const scale = Math.min(outer.width / image.naturalWidth, outer.height / image.naturalHeight);
  const width = image.naturalWidth * scale, height = image.naturalHeight * scale;
  return {
    left: outer.left - frame.left + (outer.width - width) / 2,
    top: outer.top - frame.top + (outer.height - height) / 2,
    width, height,
  };
};

const show = () => {
  everywhere.checked = !box;
  inside.checked = !!box;
  form.classList.toggle("boxed", !!box);
  const frame = document.querySelector("#edit-picture");
  image = frame?.querySelector("img") ?? null;
  layer.hidden = !box || !image?.naturalWidth;
  if (frame && layer.parentElement !== frame) frame.append(layer);
  if (!box) return;
  sides.forEach((input, at) => {
    const percent = Math.round(100 * box[at]);
    if (input !== document.activeElement && input.value !== `${percent}`) input.value = percent;
  });
  if (layer.hidden) return;
  const where = area();
  for (const name in where) layer.style[name] = `${where[name]}px`;
  const [left, top, right, bottom] = box.map(side => 100 * side);
  Object.assign(mark.style, {
    left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%`,
  });
};
const keep = () => {
  if (props.value !== written(box)) props.value = written(box);
  show();
};

const place = event => {
  const frame = layer.getBoundingClientRect();
  return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
};
const grabbed = ([x, y]) => { // a corner, the inside, or nothing: then a new box begins
  const frame = layer.getBoundingClientRect();
  const near = (at, side, length) => Math.abs(at - side) * length < reach;
  for (const [across, down] of [[0, 1], [0, 3], [2, 1], [2, 3]]) {
    if (near(x, box[across], frame.width) && near(y, box[down], frame.height)) {
      return { from: [box[2 - across], box[4 - down]] };
    }
  }
  const within = x > box[0] && x < box[2] && y > box[1] && y < box[3];
  return within ? { move: [x, y], begun: [...box] } : { from: [x, y] };
};
layer.addEventListener("pointerdown", event => {
  event.preventDefault();
  layer.setPointerCapture(event.pointerId);
  drag = grabbed(place(event));
});
layer.addEventListener("pointermove", event => {
  if (!drag) return;
  const [x, y] = place(event);
  if (drag.from) {
    box = ordered([...drag.from, x, y].map(clamp));
  } else {
    const [l, t, r, b] = drag.begun;
    const across = Math.min(1 - r, Math.max(-l, x - drag.move[0]));
    const down = Math.min(1 - b, Math.max(-t, y - drag.move[1]));
    box = [l + across, t + down, r + across, b + down];
  }
  show();
});
const dropped = () => {
  if (!drag) return;
  drag = null;
  if (box[2] - box[0] < least || box[3] - box[1] < least) box = read(props.value);
  keep();
};
layer.addEventListener("pointerup", dropped);
layer.addEventListener("pointercancel", dropped);

everywhere.addEventListener("change", () => { box = null; keep(); });
inside.addEventListener("change", () => { box ??= [0.25, 0.25, 0.75, 0.75]; keep(); });
sides.forEach(input => input.addEventListener("change", () => {
  const typed = sides.map(one => clamp(Number(one.value) / 100));
  if (typed[2] - typed[0] < least || typed[3] - typed[1] < least) { // back to what it was
    input.value = Math.round(100 * box[sides.indexOf(input)]);
    return;
  }
  box = typed;
  keep();
}));

watch("value", () => { box = read(props.value); show(); });
box = read(props.value);
show();
document.addEventListener("load", event => {
  if (event.target.closest?.("#edit-picture")) show();
}, { capture: true });
const tab = element.closest("#edit") ?? document.body;
new ResizeObserver(show).observe(tab);
new MutationObserver(changes => {
  if (changes.some(change => change.target !== layer && !layer.contains(change.target)
      && change.target.closest?.("#edit-picture"))) show();
}).observe(tab, { subtree: true, childList: true });
