import { expect } from 'vitest';
import { within } from './box.ts';
import type { Suite } from './suite.ts';

export function concurrencyCases(suite: Suite): void {
  suite.share();

  suite.inBox('a hundred commands at once each have their own output and end', [], async (box) => {
    const ran = await Promise.all(
      Array.from({ length: 100 }, (_, at) => box.run(`echo out-${at}; echo err-${at} 1>&2; exit ${at}`)),
    );
    ran.forEach((each, at) =>
      expect(each).toMatchObject({ stdout: `out-${at}\n`, stderr: `err-${at}\n`, exitCode: at }),
    );
  });

  suite.inBox('a hundred commands that wait at once all end', [], async (box) => {
    const ran = await within(
      20_000,
      'all of them',
      Promise.all(Array.from({ length: 100 }, () => box.run(['sleep', '0.5']))),
    );
    expect(ran.every(({ exitCode }) => exitCode === 0)).toBe(true);
  });

  suite.inBox('a hundred files are written and read at once', [], async (box) => {
    await Promise.all(
      Array.from({ length: 100 }, (_, at) => box.write(`dir-${at % 7}/file-${at}`, `content ${at}`)),
    );
    const contents = await Promise.all(
      Array.from({ length: 100 }, (_, at) => box.read(`dir-${at % 7}/file-${at}`)),
    );
    expect(contents.map(String)).toEqual(Array.from({ length: 100 }, (_, at) => `content ${at}`));
  });

  suite.inBox('commands, files and readers go on side by side', [], async (box) => {
    const content = Buffer.alloc(2_000_000, 'z');
    await box.write('big', content);
    const [ran, read, listed] = await Promise.all([
      Promise.all(Array.from({ length: 10 }, () => box.run(['cat', 'big']))),
      Promise.all(Array.from({ length: 10 }, () => box.read('big'))),
      Promise.all(Array.from({ length: 20 }, () => box.files.stat(`${box.dir}/big`))),
    ]);
    expect(ran.every(({ bytes }) => bytes.equals(content))).toBe(true);
    expect(read.every((bytes) => bytes.equals(content))).toBe(true);
    expect(listed.every(({ sizeBytes }) => sizeBytes === content.length)).toBe(true);
  });

  suite.case(
    'many sandboxes are made, used and removed at once',
    [],
    async () => {
      const count = suite.options.sandboxes ?? 50;
      const ids = Array.from({ length: count }, () => suite.id());
      const outputs = await Promise.all(
        ids.map(async (id, at) => {
          await suite.backend.ensure(id, suite.spec());
          const guest = await suite.backend.connect(id);
          await guest.files('user').write('/home/user/who', Buffer.from(`${at}`));
          const handle = await guest.exec({
            id: 'who',
            argv: ['cat', '/home/user/who'],
            env: {},
            workdir: '/home/user',
            user: 'user',
          });
          let text = '';
          for await (const chunk of handle.output)
            if (chunk.channel === 'stdout') text += Buffer.from(chunk.data).toString();
          return text;
        }),
      );
      expect(outputs).toEqual(ids.map((_, at) => `${at}`));
      const phases = new Map((await suite.backend.list()).map(({ id, phase }) => [id, phase]));
      expect(ids.every((id) => phases.get(id) === 'ready')).toBe(true);
      await Promise.all(ids.map((id) => suite.backend.remove(id)));
      const left = new Set((await suite.backend.list()).map(({ id }) => id));
      expect(ids.filter((id) => left.has(id))).toEqual([]);
    },
    120_000,
  );
}
