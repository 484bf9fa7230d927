/**
 * A program that has moved from E2B: E2B's client, an environment, and nothing that knows of us. Prints
 * what it saw.
 */
import './localhost-names.ts';
import { Sandbox } from 'e2b';

const sandbox = await Sandbox.create();
await sandbox.files.write('note', 'by host');
const url = await sandbox.downloadUrl('note');
const unsigned = new URL(url);
unsigned.searchParams.delete('signature');
await sandbox.commands.run('serve', { background: true });
const told = {
  id: sandbox.sandboxId,
  host: sandbox.getHost(3000),
  read: await sandbox.files.read('note'),
  downloaded: await (await fetch(url)).text(),
  unsigned: (await fetch(unsigned)).status,
  application: (await fetch(`https://${sandbox.getHost(3000)}/`)).status,
  killed: await sandbox.kill(),
  running: await sandbox.isRunning(),
};
process.stdout.write(JSON.stringify(told));
