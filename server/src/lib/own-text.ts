/**
 * A text by itself, no longer than `most`. A part of a text keeps the whole of it in memory, so what is kept
 * of a long one has to be copied.
 */
export function ownText(text: string, most = text.length): string {
  return Buffer.from(text.slice(0, most)).toString();
}
