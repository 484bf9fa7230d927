/**
 * Which folder may import which. `scripts/check` runs this file; a folder without a rule is a violation too.
 *
 * A layer lists the layers that it may import. A family is a folder of drivers that never import one another:
 * every subfolder that is not listed as shared is a driver, or, where drivers are single files, every file
 * that is listed. The rest of a family is its contract and what its drivers share.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

const FOLDERS = {
  lib: [],
  policy: ['lib'],
  // A client of S3 servers.
  s3: ['lib'],
  storage: ['s3', 'lib'],
  // Buckets as directories: the control plane opens them, backends mount them.
  'bucket-mounts': ['s3', 'lib'],
  egress: ['lib'],
  guest: ['egress', 'lib'],
  enforcement: ['guest', 'egress', 'lib'],
  host: ['bucket-mounts', 'guest', 'egress', 'lib'],
  records: ['policy', 'lib'],
  backends: ['host', 'bucket-mounts', 'guest', 'egress', 'policy', 'lib'],
  control: [
    'backends',
    'bucket-mounts',
    'enforcement',
    'guest',
    'egress',
    'records',
    'storage',
    's3',
    'policy',
    'lib',
  ],
  api: ['control', 'guest', 'policy', 'lib'],
  // The schema itself is `settings.ts`, which stands beside the folders because it knows the backends.
  settings: ['egress', 's3', 'policy', 'lib', '.'],
  cli: [
    'settings',
    'api',
    'control',
    'backends',
    'bucket-mounts',
    'host',
    'guest',
    'egress',
    'records',
    'policy',
    'lib',
    '.',
  ],
} satisfies Record<string, readonly string[]>;

export const LAYERS: Readonly<Record<string, readonly string[]>> = {
  ...FOLDERS,
  // What stands beside the folders composes them: `main.ts`, `serve.ts`.
  '.': Object.keys(FOLDERS),
};

interface Family {
  folder: string;
  /** Subfolders that are not drivers. */
  shared?: readonly string[];
  /** Drivers that are single files. */
  files?: readonly string[];
}

export const FAMILIES: readonly Family[] = [
  // The composite holds other backends, whatever they are: it is built on the contract alone.
  { folder: 'backends', shared: ['abilities', 'composite', 'probing', 'support'] },
  {
    folder: 'backends/kubernetes',
    shared: ['client', 'links', 'tenancy', 'testing', 'volumes', 'workloads'],
  },
  { folder: 'host/runtimes', files: ['crun', 'process', 'runc', 'runsc'] },
  { folder: 'host/snapshots', files: ['btrfs', 'overlay', 'zfs'] },
  { folder: 'host/cgroups', files: ['v1', 'v2'] },
  { folder: 'storage', files: ['directory', 's3'] },
  { folder: 'control/tools/dialects', files: ['anthropic', 'claude', 'codex'] },
  { folder: 'records', shared: ['events', 'leases', 'sealing', 'sql', 'tables'] },
];

/** Layers that see a family through its contract alone, and so none of its drivers. */
export const CONTRACT_ONLY: Readonly<Record<string, readonly string[]>> = {
  control: ['backends', 'storage'],
};

const SERVER = 'server/src/';
/** Words for errors of the operating system, which the SDK needs too. */
const SYSTEM_ERRORS = '@cay/sdk/system-error';
const PROTOCOL = 'sdk/src/protocol/';
const IMPORT = /(?:\bfrom|\bimport\(|\bimport)\s*(['"])([^'"\n]+)\1/g;

/** Every import that breaks a rule, as one line each. Keys are paths from the root of the repository. */
export function violations(sources: ReadonlyMap<string, string>): string[] {
  const found = new Set<string>();
  for (const [file, source] of sources) {
    for (const [, , specifier] of source.matchAll(IMPORT)) {
      const why = fault(file, specifier!);
      if (why !== undefined) found.add(`${file} imports "${specifier}": ${why}`);
    }
    if (file.startsWith(SERVER) && LAYERS[layerOf(file)] === undefined)
      found.add(`${file}: the folder "${layerOf(file)}" has no rule in scripts/layers.ts`);
  }
  return [...found];
}

function fault(file: string, specifier: string): string | undefined {
  const ours = specifier.startsWith('.') || specifier.startsWith('@cay/') || specifier === 'cay';
  if (!ours) return undefined;
  const target = specifier.startsWith('.') ? normalize(join(dirname(file), specifier)) : specifier;
  if (file.startsWith(PROTOCOL))
    return target.startsWith(PROTOCOL) ? undefined : 'the protocol imports nothing of ours';
  if (file.startsWith('sdk/src/'))
    return target.startsWith('sdk/src/') ? undefined : 'the SDK imports nothing of the server';
  if (!file.startsWith(SERVER)) return undefined;
  const layer = layerOf(file);
  if (target.startsWith('@cay/'))
    return layer === 'lib' && target !== SYSTEM_ERRORS ? 'lib has no word of our domain' : undefined;
  if (!target.startsWith(SERVER)) return undefined;
  const other = layerOf(target);
  if (layer !== other && !LAYERS[layer]?.includes(other)) return `"${layer}" may not import "${other}"`;
  for (const family of FAMILIES) {
    const driver = driverOf(target, family);
    if (driver === undefined) continue;
    const own = driverOf(file, family);
    if (own !== undefined && own !== driver)
      return `drivers never import one another ("${own}" and "${driver}" of ${family.folder})`;
    if (CONTRACT_ONLY[layer]?.includes(family.folder))
      return `"${layer}" sees ${family.folder} through its contract alone`;
  }
  return undefined;
}

function layerOf(file: string): string {
  const [first, ...rest] = file.slice(SERVER.length).split('/');
  return rest.length === 0 ? '.' : first!;
}

function driverOf(file: string, { folder, shared, files }: Family): string | undefined {
  const start = `${SERVER}${folder}/`;
  if (!file.startsWith(start)) return undefined;
  const [first, ...rest] = file.slice(start.length).split('/');
  if (rest.length > 0) return shared !== undefined && !shared.includes(first!) ? first : undefined;
  const name = first!.replace(/\.ts$/, '');
  return files?.includes(name) ? name : undefined;
}

/** The sources that the rules are about: not tests, which may use everything. */
export function productSources(): Map<string, string> {
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard', 'server/src', 'sdk/src'], {
    encoding: 'utf8',
  });
  return new Map(
    files
      .split('\n')
      .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts') && !file.includes('/testing/'))
      .map((file) => [file, readFileSync(file, 'utf8')]),
  );
}

if (import.meta.main) {
  const found = violations(productSources());
  for (const line of found) process.stderr.write(`${line}\n`);
  process.exitCode = found.length > 0 ? 1 : 0;
}
