/** Ranges of ports, sorted, apart from each other, both ends included. */
export type Ports = readonly (readonly [number, number])[];

export const ANY_PORT: Ports = [[1, 65_535]];
export const WEB_PORTS: Ports = [
  [80, 80],
  [443, 443],
];
const MAX_RANGES = 64;

/** Reads `443`, `22,443`, `8000-8010`, `*`. Gives a sentence that says what is wrong otherwise. */
export function parsePorts(text: string): Ports | string {
  if (text === '*') return ANY_PORT;
  if (text === '') return 'there is no port after the colon';
  const ranges: [number, number][] = [];
  for (const part of text.split(',')) {
    const [, low, high = low] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part) ?? [];
    if (low === undefined || high === undefined) return `"${part}" is no port`;
    if (/^0\d/.test(low) || /^0\d/.test(high)) return `port "${part}" begins with 0`;
    const range: [number, number] = [Number(low), Number(high)];
    if (range[0] < 1 || range[1] > 65_535) return `port ${part} is not between 1 and 65535`;
    if (range[0] > range[1]) return `the range ${part} ends before it begins`;
    ranges.push(range);
    if (ranges.length > MAX_RANGES) return `there are more than ${MAX_RANGES} ports`;
  }
  return mergePorts(ranges);
}

export function mergePorts(ranges: Iterable<readonly [number, number]>): Ports {
  const merged: [number, number][] = [];
  for (const [low, high] of [...ranges].toSorted(([one], [other]) => one - other)) {
    const last = merged.at(-1);
    if (last !== undefined && low <= last[1] + 1) last[1] = Math.max(last[1], high);
    else merged.push([low, high]);
  }
  return merged;
}

export function printPorts(ports: Ports): string {
  if (samePorts(ports, ANY_PORT)) return '*';
  return ports.map(([low, high]) => (low === high ? `${low}` : `${low}-${high}`)).join(',');
}

/** Asked for each rule of a name, of which there may be a thousand with as many ranges as there can be. */
export function hasPort(ports: Ports, port: number): boolean {
  let from = 0;
  let to = ports.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    const [low, high] = ports[middle]!;
    if (port > high) from = middle + 1;
    else if (port < low) to = middle;
    else return true;
  }
  return false;
}

export function samePorts(one: Ports, other: Ports): boolean {
  return (
    one.length === other.length &&
    one.every(([low, high], index) => other[index]![0] === low && other[index]![1] === high)
  );
}
