/** How often each stack was seen: process and functions from the outermost in, joined with semicolons. */
export type Stacks = Map<string, number>;

/** Threads of the kernel that only wait. */
const IDLE = 'swapper';
/** The profiler, and what it runs. */
const OWN = /^(perf|sleep)$/;

/**
 * Adds one sample of `perf script -F comm,pid,ip,sym`: a line with the thread's name and the process, then a
 * line for each function, the innermost first. What this process does goes by the name `engine`.
 */
export function foldStack(lines: readonly string[], engine: number, stacks: Stacks): void {
  const head = /^\s*(.+?)\s+(-?\d+)\s*$/.exec(lines[0] ?? '');
  if (!head || lines.length < 2) return;
  const [, thread, pid] = head as unknown as [string, string, string];
  if (thread === IDLE || OWN.test(thread)) return;
  const frames = lines.slice(1).map((line) => nameOf(line.replace(/^\s*[0-9a-f]+\s*/, '')));
  // Functions without a name say nothing, one after the other even less.
  const named = frames
    .reverse()
    .filter((name, index, all) => name !== '[unknown]' || all[index - 1] !== name);
  const key = [Number(pid) === engine ? 'engine' : processOf(thread), ...named].join(';');
  stacks.set(key, (stacks.get(key) ?? 0) + 1);
}

/** Worker threads of the kernel are one, whatever their number. */
function processOf(thread: string): string {
  return thread.startsWith('kworker/') ? 'kworker' : thread.replaceAll(';', ',');
}

/** JavaScript without the path of its file, C++ and Rust without the arguments. */
function nameOf(symbol: string): string {
  const plain = symbol.replace(/\+0x[0-9a-f]+$/, '').replaceAll(';', ',');
  const script = /^(?:JS|LazyCompile|Function|Script|Builtin|BytecodeHandler):[*~^+']?(\S*)\s?(.*)$/.exec(
    plain,
  );
  if (!script) return plain.slice(0, 80);
  const file = script[2]!.replace(/^.*\//, '').replace(/:\d+$/, '');
  return `${script[1] || '(anonymous)'}${file ? ` ${file}` : ''}`.slice(0, 80);
}
