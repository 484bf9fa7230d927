import { expect, it } from 'vitest';
import { asked, installation, memoryBackend } from '../testing/test-control.ts';

it('the snapshots of rollbacks are pruned by retention, but never the newest', async () => {
  const place = installation();
  const { control, principal, errors } = await place.open(memoryBackend());
  const { sandbox } = await control.create(principal, asked({ retention: { keepLast: 2 } }));
  const to = (await control.snapshot(principal, sandbox.id, { name: 'start' })).id;
  const kept: string[] = [];
  for (let count = 0; count < 4; count++)
    kept.push((await control.rollback(principal, sandbox.id, { to })).kept!.id);
  const left = async () =>
    (await control.snapshots(principal, { limit: 50, sandbox: sandbox.id })).snapshots
      .map(({ id }) => id)
      .toSorted();
  await expect.poll(left, { timeout: 10_000 }).toEqual([to, ...kept.slice(-2)].toSorted());
  await control.close();
  expect(errors).toEqual([]);
  place.remove();
});
