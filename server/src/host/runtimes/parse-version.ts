/**
 * `runc version 1.1.5+ds1` and `runsc version 0.0~20240729.0`, each with more lines, become `runc 1.1.5` and
 * `runsc 20240729`.
 */
export function parseVersion(name: string, text: string): string {
  const word = /version\s+(?:release-)?(\S+)/.exec(text)?.[1] ?? text.split('\n')[0]?.trim() ?? 'unknown';
  const date = /(20\d{6})/.exec(word)?.[1];
  return `${name} ${date ?? word.replace(/[+~].*$/, '')}`;
}
