import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** What a proxy of Go modules has of one module, by path. */
export function makeModule(dir: string): Map<string, Buffer> {
  const name = 'code.example.org/demo';
  const go = `module ${name}\n\ngo 1.18\n`;
  const script = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as z:
    z.writestr('${name}@v1.0.0/go.mod', sys.argv[2])
    z.writestr('${name}@v1.0.0/demo.go', 'package demo\\n')
    z.writestr('${name}@v1.0.0/hello.txt', 'the package of go\\n')
`;
  const path = join(dir, 'module.zip');
  execFileSync('python3', ['-c', script, path, go]);
  const files: Record<string, Buffer> = {
    list: Buffer.from('v1.0.0\n'),
    'v1.0.0.info': Buffer.from('{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}'),
    'v1.0.0.mod': Buffer.from(go),
    'v1.0.0.zip': readFileSync(path),
  };
  return new Map(Object.entries(files).map(([file, bytes]) => [`/${name}/@v/${file}`, bytes]));
}
