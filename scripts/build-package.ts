/**
 * Builds what `npm pack` puts into the package `cay`: JavaScript in `server/dist`, and the guest's program.
 *
 * Node strips no types below `node_modules`, so they are stripped here, file by file; the layout stays that
 * of `src`, and files that are read by their place beside a module are copied along. The SDK goes with it.
 */
import { chmodSync, copyFileSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const OUT = join(ROOT, 'server/dist');
const { exports } = JSON.parse(readFileSync(join(ROOT, 'sdk/package.json'), 'utf8')) as {
  exports: Record<string, string>;
};
/** Entry points of the SDK as the server names them, and the files that they become. */
const SDK = new Map(
  Object.entries(exports).map(([name, path]) => [
    name.replace('.', '@cay/sdk'),
    path.replace('./src/', '').replace(/\.ts$/, '.js'),
  ]),
);

process.removeAllListeners('warning');
rmSync(OUT, { recursive: true, force: true });
compile(join(ROOT, 'server/src'), OUT);
compile(join(ROOT, 'sdk/src'), join(OUT, 'sdk'));
mkdirSync(join(ROOT, 'server/guest'), { recursive: true });
const guest = join(ROOT, 'server/guest/cay-guest');
copyFileSync(join(ROOT, 'guest/target/release/cay-guest'), guest);
chmodSync(guest, 0o755);

function compile(from: string, to: string): void {
  for (const name of globSync('**/*.*', { cwd: from })) {
    if (/(^|\/)testing\/|\.test\.ts$/.test(name)) continue;
    const target = join(to, name.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(target), { recursive: true });
    if (!name.endsWith('.ts')) copyFileSync(join(from, name), target);
    else writeFileSync(target, javascriptOf(readFileSync(join(from, name), 'utf8'), target));
  }
}

/**
 * Specifiers are rewritten in the code without types: a file `.ts` is `.js` here, and the SDK is below
 * `dist`.
 */
function javascriptOf(source: string, target: string): string {
  return stripTypeScriptTypes(source)
    .replaceAll(/((?:\bfrom|\bimport|\bURL)\s*\(?\s*')(\.{1,2}\/[^']+)\.ts'/g, "$1$2.js'")
    .replaceAll(
      /((?:\bfrom|\bimport)\s*\(?\s*')(@cay\/sdk(?:\/[\w-]+)?)'/g,
      (_, before: string, name: string) => {
        const path = relative(dirname(target), join(OUT, 'sdk', SDK.get(name)!));
        return `${before}${path.startsWith('.') ? path : `./${path}`}'`;
      },
    );
}
