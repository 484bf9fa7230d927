/** One file in a sandbox, to distinguish one moment of it from another. */
import type { TestControl } from './test-control.ts';

type Place = Pick<TestControl, 'control' | 'principal'>;

const FILE = '/home/user/file';

export async function writeText({ control, principal }: Place, ref: string, text: string): Promise<void> {
  const { guest } = await control.enter(principal, ref);
  await guest.files('user').write(FILE, Buffer.from(text));
}

export async function readText({ control, principal }: Place, ref: string): Promise<string> {
  const { guest } = await control.enter(principal, ref);
  const { data } = await guest.files('user').read(FILE);
  return Buffer.concat(await Array.fromAsync(data)).toString();
}
