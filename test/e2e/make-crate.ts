import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** A sparse registry of cargo with one crate, by path. `base` is the address that it is reached under. */
export function makeCrate(dir: string): (path: string, base: string) => Buffer | undefined {
  const root = join(dir, 'crate', 'demo-crate-1.0.0');
  mkdirSync(join(root, 'src'), { recursive: true });
  writeFileSync(
    join(root, 'Cargo.toml'),
    '[package]\nname = "demo-crate"\nversion = "1.0.0"\nedition = "2021"\n',
  );
  writeFileSync(join(root, 'src', 'lib.rs'), 'pub fn hello() { println!("the package of cargo"); }\n');
  const path = join(dir, 'demo-crate-1.0.0.crate');
  execFileSync('tar', ['-czf', path, '-C', join(dir, 'crate'), 'demo-crate-1.0.0']);
  const crate = readFileSync(path);
  const cksum = createHash('sha256').update(crate).digest('hex');
  const line = { name: 'demo-crate', vers: '1.0.0', deps: [], cksum, features: {}, yanked: false, v: 2 };
  return (asked, base) => {
    if (asked === '/config.json')
      return Buffer.from(JSON.stringify({ dl: `${base}/dl/{crate}-{version}.crate` }));
    if (asked === '/de/mo/demo-crate') return Buffer.from(`${JSON.stringify(line)}\n`);
    return asked === '/dl/demo-crate-1.0.0.crate' ? crate : undefined;
  };
}
