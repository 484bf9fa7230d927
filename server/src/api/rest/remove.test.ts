import { expect, it } from 'vitest';
import { startTestServer } from '../testing/test-server.ts';

it('a removal that does not wait is recorded when it is accepted, after a snapshot that is under way', async () => {
  await using test = await startTestServer();
  const { id } = await test.create();
  const remove = () => test.call('DELETE', `/v1/sandboxes/${id}`, { headers: { prefer: 'respond-async' } });

  const snapshot = test.backend.snapshot.bind(test.backend);
  const [begun, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  test.backend.snapshot = async (...values) => {
    begun.resolve();
    await goOn.promise;
    return snapshot(...values);
  };
  const taken = test.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
  await begun.promise;
  let accepted = false;
  const removed = remove().then((answer) => {
    accepted = true;
    return answer;
  });
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(accepted).toBe(false);

  const gone = Promise.withResolvers<void>();
  const removeNow = test.backend.remove.bind(test.backend);
  test.backend.remove = async (...values) => {
    await gone.promise;
    return removeNow(...values);
  };
  goOn.resolve();
  expect((await taken).status).toBe(201);
  expect((await removed).status).toBe(202);
  expect((await test.call('GET', `/v1/sandboxes/${id}`)).json.state).toBe('destroying');
  gone.resolve();
  await expect.poll(async () => (await test.call('GET', `/v1/sandboxes/${id}`)).status).toBe(404);
  expect((await remove()).status).toBe(202);
});
