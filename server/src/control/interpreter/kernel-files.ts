/** The files of the kernel, as they are put into sandboxes. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { INTERPRETER_PORT } from './interpreter.ts';

export interface KernelFile {
  name: string;
  content: Buffer;
}

export interface KernelFiles {
  files: readonly KernelFile[];
  /** Of all files, so that a kernel of another version is known. */
  digest: string;
}

/** The first is started. */
const NAMES = [
  'kernel.py',
  'kernel_context.py',
  'kernel_python.py',
  'kernel_forms.py',
  'kernel_charts.py',
  'kernel_bash.sh',
  'kernel_node.js',
] as const;
/** Takes the types out of TypeScript, for versions of Node that cannot. */
const TYPES = 'amaro.js';

let known: KernelFiles | undefined;

/** Read once, at the first use. */
export function kernelFiles(): KernelFiles {
  if (known) return known;
  const folder = join(import.meta.dirname, 'kernel');
  const files = [
    ...NAMES.map((name) => ({ name, content: readFileSync(join(folder, name)) })),
    { name: TYPES, content: readFileSync(typesFile()) },
  ];
  const hash = createHash('sha256');
  for (const { name, content } of files) hash.update(`${name}\0${content.length}\0`).update(content);
  return (known = { files, digest: hash.digest('hex') });
}

/** One file of the package has all of it, and is not among those that it exports. */
function typesFile(): string {
  return join(dirname(createRequire(import.meta.url).resolve('amaro')), 'internal.js');
}

/** The program and its arguments. */
export function kernelCommand(directory: string): string[] {
  return ['python3', `${directory}/${NAMES[0]}`, String(INTERPRETER_PORT), environmentFile(directory)];
}

/** The kernel reads it before it runs code. */
export function environmentFile(directory: string): string {
  return `${directory}/env.json`;
}
