const FIRST = 0x10;
const BOTH = Buffer.of(FIRST, 0x11);

/**
 * What of the input is the command's, and whether Ctrl-P and then Ctrl-Q were typed, in one chunk or in two.
 */
export interface Typed {
  pass: Buffer;
  detach: boolean;
}

export function detachKeys(): (data: Buffer) => Typed {
  let held = false;
  return (data) => {
    const all = held ? Buffer.concat([BOTH.subarray(0, 1), data]) : data;
    const at = all.indexOf(BOTH);
    if (at >= 0) return { pass: all.subarray(0, at), detach: true };
    // It is the command's, unless Ctrl-Q comes next.
    held = all.at(-1) === FIRST;
    return { pass: held ? all.subarray(0, -1) : all, detach: false };
  };
}
