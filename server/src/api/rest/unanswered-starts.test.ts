/** A program in a sandbox takes the guest's place, and answers no start of a command. */
import { CayError } from '@cay/sdk/protocol';
import { expect, it } from 'vitest';
import { openPolicy } from '../../policy/policy.ts';
import { startTestServer } from '../testing/test-server.ts';

it('cannot make the server record commands without bound', async () => {
  await using test = await startTestServer({ policy: openPolicy({ maxima: { commands: 4 } }) });
  const { id } = await test.create();
  const { connect } = test.backend;
  test.backend.connect = async (sandbox) => ({
    ...(await connect.call(test.backend, sandbox)),
    exec: () => Promise.reject(new CayError('unavailable', 'The guest has hung up')),
  });
  const run = (number: number, headers = {}) =>
    test.call('POST', `/v1/sandboxes/${id}/commands`, {
      body: { id: `cmd-${number}`, argv: ['true'] },
      headers,
    });
  const statuses = new Map<number, number>();
  for (let number = 0; number < 300; number++) {
    const { status } = await run(number);
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
  }
  // The server cannot know whether it was started, so each is recorded.
  expect([...statuses]).toEqual([
    [503, 260],
    [429, 40],
  ]);
  const { json } = await run(301);
  expect(json.error).toMatchObject({
    code: 'resource_exhausted',
    details: { limit: 'unendedCommands', maximum: 260 },
  });
  // A command that is recorded already can be tried again.
  expect((await run(0)).status).toBe(503);
  // Another sandbox is not affected.
  test.backend.connect = connect;
  const other = await test.create();
  const started = await test.call('POST', `/v1/sandboxes/${other.id}/commands`, { body: { argv: ['true'] } });
  expect(started.status).toBe(201);
});
