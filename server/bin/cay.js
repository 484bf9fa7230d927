#!/usr/bin/env node
// The command line of the npm package. It needs Node.js 24; with an older one it uses the one that comes along.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

// In a clone that has built no package the sources run as they are.
const BUILT = new URL('../dist/main.js', import.meta.url);
const MAIN = existsSync(BUILT) ? BUILT : new URL('../src/main.ts', import.meta.url);
const NEEDED = 24;

if (Number(process.versions.node.split('.')[0]) >= NEEDED) await import(MAIN.href);
else process.exitCode = withOwnNode();

function withOwnNode() {
  let node;
  try {
    node = createRequire(import.meta.url).resolve(`node-linux-${process.arch}/bin/node`);
  } catch {
    process.stderr.write(`error: Cay needs Node.js ${NEEDED} or newer, and this is ${process.version}\n`);
    process.stderr.write(`hint: install Node.js ${NEEDED}, or install Cay with its optional packages\n`);
    return 69;
  }
  const { status, signal } = spawnSync(node, [fileURLToPath(MAIN), ...process.argv.slice(2)], {
    stdio: 'inherit',
  });
  if (signal) process.kill(process.pid, signal);
  return status ?? 70;
}
