import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

/** The directory of this machine's Rust, with `bin` and `lib`; `undefined` if it has none that is whole. */
export function rustToolchain(): string | undefined {
  try {
    const root = execFileSync('rustc', ['--print', 'sysroot'], { encoding: 'utf8' }).trim();
    return ['cargo', 'rustc'].every((name) => existsSync(join(root, 'bin', name))) ? root : undefined;
  } catch {
    return undefined;
  }
}
