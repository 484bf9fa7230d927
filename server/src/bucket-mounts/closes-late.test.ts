import { Buffer } from 'node:buffer';
import { describe, expect, it } from 'vitest';
import { openTestFiles } from './testing/open-files.ts';

describe('a file that stays open', () => {
  it.each([
    { closesLate: false, content: undefined, title: 'is not in the bucket' },
    { closesLate: true, content: 'one', title: 'is there once nobody changes it, where kernels close late' },
  ])('$title', async ({ closesLate, content }) => {
    await using world = await openTestFiles({ closesLate });
    const { files, bucket } = world;
    const { attributes, handle } = await files.open.create(1, 'file', 1);
    await files.open.write(attributes.node, Buffer.from('one'), 0);
    await files.writeIdle(60_000);
    expect(bucket.text('file')).toBeUndefined();
    await files.writeIdle(-1_000);
    expect(bucket.text('file')).toBe(content);
    // It is written on, and closed at last.
    await files.open.write(attributes.node, Buffer.from(' two'), 3);
    await files.open.flush(attributes.node, handle);
    await files.open.release(attributes.node, handle);
    await files.writeIdle(-1_000);
    expect(bucket.text('file')).toBe('one two');
  });
});
