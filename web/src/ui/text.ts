// Text and numbers as people read them.

// What moves the cursor, turns a line round or shows nothing: controls, format characters, lone surrogates.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;

/** Any text with its hidden characters made visible; line breaks and tabs stay where `keep` has them. */
export function visible(text: string, keep = ""): string {
  return text.replace(HIDDEN, (letter) => {
    if (keep.includes(letter)) return letter;
    const code = letter.codePointAt(0)!;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? "\u2421" : "\ufffd";
  });
}

/** A token: spaces and line breaks are what one wants to see in it. */
export function token(text: string): string {
  if (!text) return "";
  return visible(text.replaceAll("\n", "\u21b5").replaceAll("\t", "\u21e5").replaceAll(" ", "\u2423"));
}

/** As Python writes it: what lies exactly in the middle goes to the even digit, so that page and text agree. */
function fixed(value: number, digits: number): string {
  const halves = Math.round(2 * 10 ** digits * Math.abs(value));
  const middle = halves % 2 === 1 && halves % 5 ** digits === 0 && halves / (2 * 10 ** digits) === Math.abs(value);
  if (!middle) return value.toFixed(digits);
  const low = (halves - 1) / 2;
  return `${value < 0 ? "-" : ""}${((low % 2 ? low + 1 : low) / 10 ** digits).toFixed(digits)}`;
}

/** A number to about four digits, whatever its size. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "\u2013";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("-", "\u2212").replace("e\u2212", "e-");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : size >= 0.01 ? 4 : 5;
  return fixed(value, digits).replace("-", "\u2212");
}

/** A mean of counts, as the terminal has it. */
export function average(value: number | null | undefined): string {
  return value === null || value === undefined ? "\u2013" : fixed(value, 0);
}

export function interval(value: number | null | undefined, low?: number | null, high?: number | null): string {
  const known = (bound?: number | null) => bound !== null && bound !== undefined && Number.isFinite(bound);
  return known(low) && known(high) ? `${number(value)} [${number(low)}, ${number(high)}]` : number(value);
}

export function percent(share: number | null | undefined, digits = 1): string {
  return share === null || share === undefined ? "\u2013" : fixed(100 * share, digits);
}

/** A difference of shares in percentage points, with its sign. */
export function points(share: number | null | undefined, digits = 1): string {
  if (share === null || share === undefined) return "\u2013";
  const text = fixed(100 * share, digits);
  const zero = Number(text) === 0;
  return zero ? (0).toFixed(digits) : (share > 0 ? "+" : "") + text.replace("-", "\u2212");
}

/** A p value to three digits, without zeros behind them, as the terminal has it. */
export function chance(p: number | null | undefined): string {
  if (p === null || p === undefined) return "\u2013";
  return p < 0.001 ? "< 0.001" : String(Number(p.toPrecision(3)));
}
