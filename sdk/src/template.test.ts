import { describe, expect, it } from 'vitest';
import { Template } from './template.ts';

describe('a template that is built step by step', () => {
  it('is a Dockerfile in which every word is quoted', () => {
    const template = Template.from('base')
      .run('echo "a" && echo $HOME\nls')
      .run(['pip', 'install', 'x'])
      .env({ WHO: 'a "b" $c' })
      .workdir('/srv/my app')
      .write('/srv/app.py', 'print(1)')
      .copyFrom('other:1', '/a', '/b')
      .user('user')
      .expose(80, 81);
    expect(template.dockerfile.split('\n')).toEqual([
      'FROM base',
      'RUN ["/bin/sh","-c","echo \\"a\\" && echo $HOME\\nls"]',
      'RUN ["pip","install","x"]',
      'ENV WHO="a \\"b\\" \\$c"',
      'WORKDIR /srv/my app',
      'COPY ["files/0","/srv/app.py"]',
      'COPY --from=other:1 ["/a","/b"]',
      'USER user',
      'EXPOSE 80',
      'EXPOSE 81',
      '',
    ]);
  });

  it('does not change when a step is added to it', () => {
    const one = Template.from('base');
    one.run('true');
    expect(one.dockerfile).toBe('FROM base\n');
  });

  it('refuses what would become another instruction', () => {
    expect(() => Template.from('base\nRUN evil')).toThrow('one word');
    expect(() => Template.from().env({ 'A B': '1' })).toThrow('no name');
    expect(() => Template.from().env({ A: '1\nRUN evil' })).toThrow('one line');
    expect(() => Template.from().workdir('/a\nRUN evil')).toThrow('one line');
  });
});
