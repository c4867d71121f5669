/** Words and numbers as cellblock's cards have them. */

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]|(?! )\p{Zs}/gu;

/**
 * Return `text` with every control, format and blank character spelled out, line breaks aside.
 *
 * What is left can neither reorder a line nor hide in it.
 */
export function visible(text: string): string {
  return text.replace(UNSEEN, char => {
    const code = char.codePointAt(0) ?? 0;
    if (char === '\n') {
      return char;
    }
    if (char < ' ') {
      return String.fromCodePoint(0x2400 + code);
    }
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
  });
}

/** Return `1 finding`, `2 findings`. */
export function count(number: number, noun: string): string {
  return `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;
}

/** Return bytes as `1.5 MiB`. */
export function size(bytes: number): string {
  for (const [unit, name] of [
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
    [2 ** 10, 'KiB']
  ] as const) {
    if (bytes >= unit) {
      return `${Number((bytes / unit).toFixed(1))} ${name}`;
    }
  }
  return `${bytes} B`;
}

/** Return a time as `1.5 ms`, `12.3 s`, `2 min 5 s`. */
export function duration(seconds: number): string {
  if (seconds < 0.9995) {
    return `${Number((seconds * 1000).toPrecision(3))} ms`;
  }
  if (seconds < 100) {
    return `${Number(seconds.toPrecision(3))} s`;
  }
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}
