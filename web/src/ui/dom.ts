// Elements from code. Text is always a text node: nothing that a model or a data set wrote is ever read as markup.

export type Child = Node | string | number | null | undefined | false;
type Attribute = string | number | boolean | null | undefined | ((event: never) => unknown);
type Attributes = Record<string, Attribute>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg";

export function s(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value as unknown as EventListener);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function replace(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  fill(element, {}, children);
}

/** A menu; `options` are values with what a person reads. */
export function select(
  label: string,
  options: [string, string][],
  value: string,
  change: (value: string) => void,
  name = label.toLowerCase(),
): HTMLLabelElement {
  const menu: HTMLSelectElement = h("select", { name, change: () => change(menu.value) });
  for (const [key, text] of options) menu.append(h("option", { value: key, selected: key === value }, text));
  return h("label", { class: "control" }, h("span", {}, label), menu);
}

/** A few choices of which one holds. */
export function choice(
  label: string,
  options: [string, string][],
  value: string,
  change: (value: string) => void,
): HTMLElement {
  const group = h("div", { class: "choice", role: "group", "aria-label": label });
  for (const [key, text] of options) {
    group.append(
      h(
        "button",
        { type: "button", "data-value": key, "aria-pressed": String(key === value), click: () => change(key) },
        text,
      ),
    );
  }
  return group;
}

export function toggle(label: string, on: boolean, change: (on: boolean) => void): HTMLElement {
  const box: HTMLInputElement = h("input", {
    type: "checkbox",
    name: label.toLowerCase(),
    change: () => change(box.checked),
  });
  box.checked = on;
  return h("label", { class: "control check" }, box, h("span", {}, label));
}

/** Draws anew what the keyboard may stand in, and puts it back where it was. */
export function keepingFocus(ground: HTMLElement, draw: () => void): void {
  const held = ground.contains(document.activeElement) ? (document.activeElement as HTMLElement) : null;
  const title = held?.closest("[data-title]")?.getAttribute("data-title"); // of several cards, the same one
  const within = title ? `[data-title="${CSS.escape(title)}"] ` : "";
  const marks = ["name", "data-value", "data-condition", "data-kind"].filter((mark) => held?.hasAttribute(mark));
  const place = marks.map((mark) => `[${mark}="${CSS.escape(held!.getAttribute(mark)!)}"]`).join("");
  const chart = held?.classList.contains("linechart") ? ".linechart" : "";
  draw();
  if (place || chart) ground.querySelector<HTMLElement>(within + (place || chart))?.focus({ preventScroll: true });
}
