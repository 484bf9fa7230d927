/** Known container escapes of runc, and the first version of each series without them. */
interface Fix {
  names: string;
  /** The first fixed version in each series; later series never had the defect. */
  since: readonly [number, number, number][];
}

const FIXES: readonly Fix[] = [
  { names: 'CVE-2024-21626', since: [[1, 1, 12]] },
  {
    names: 'CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881',
    since: [
      [1, 2, 8],
      [1, 3, 3],
      [1, 4, 0],
    ],
  },
];

/**
 * Escapes that this version had when it was published. A distribution may have backported the fix without a
 * new number.
 */
export function missingRuncFixes(version: string): string[] {
  const found = /(\d+)\.(\d+)\.(\d+)/.exec(version);
  if (!found) return [];
  const [major = 0, minor = 0, patch = 0] = found.slice(1).map(Number);
  return FIXES.filter(({ since }) => {
    const last = since.at(-1)!;
    if (major !== last[0]) return major < last[0];
    const own = since.find((fix) => fix[1] === minor);
    return own ? patch < own[2] : minor < last[1];
  }).map(({ names }) => names);
}
