/**
 * A text without these characters at its end. A regular expression such as `/ +$/` looks at a run of them
 * once from each of its places, which for texts of tenants is too often.
 */
export function trimEnd(text: string, characters: string): string {
  let end = text.length;
  while (end > 0 && characters.includes(text[end - 1]!)) end--;
  return text.slice(0, end);
}
