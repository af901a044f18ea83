"""What people say about an answer in languages with a small list, and what they ask for next with the same words."""

from __future__ import annotations

import pytest

from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import hint_by_rules, vote_by_rules
from openclaw.judge.rules.languages import language_of
from openclaw.judge.rules.wordings import LISTED

TURNS = {
    "de": ("Schreib eine Einladung zum Sommerfest.", "Hiermit laden wir Sie förmlich zu unserem Sommerfest in Ulm ein."),
    "es": ("Escribe una invitación a la boda.", "Por la presente le invitamos a la boda en Toledo."),
    "fr": ("Écris une invitation au mariage.", "Nous vous prions d'assister au mariage à Lyon."),
    "it": ("Scrivi un invito al matrimonio.", "Con la presente La invitiamo al matrimonio a Siena."),
    "pt": ("Escreva um convite para o casamento.", "Vimos por este meio convidar para o casamento em Braga."),
    "nl": ("Schrijf een uitnodiging voor de bruiloft.", "Hierbij nodigen wij u uit voor de bruiloft in Delft."),
    "pl": ("Napisz zaproszenie na ślub.", "Niniejszym zapraszamy na ślub w Krakowie."),
    "ru": ("Напиши приглашение на свадьбу.", "Настоящим приглашаем вас на свадьбу в Казани."),
    "tr": ("Düğün için bir davetiye yaz.", "İşbu davetiye ile sizi Bursa'daki düğüne davet ederiz."),
    "ja": ("結婚式の招待状を書いてください。", "謹んで京都での結婚式にご招待申し上げます。"),
    "hi": ("शादी का निमंत्रण लिखिए।", "आपको जयपुर में हमारे विवाह समारोह में सादर आमंत्रित किया जाता है।"),
    "ar": ("اكتب دعوة إلى حفل الزفاف.", "يسرنا أن ندعوكم إلى حفل زفافنا في عمّان."),
    "en": ("Write an invitation to our wedding.", "You are hereby invited to the wedding in Bath."),
}  # fmt: skip
"""The request in each language, and the answer."""

COMPLAINTS = {
    "de": [
        "Viel zu steif.", "Das klingt wie ein Roboter.", "Danach habe ich nicht gefragt.", "Geht das auch lockerer?",
        "Bitte eine kürzere Version", "Immer noch zu lang!", "Das Sommerfest ist nicht in Ulm.",
        "Du verwechselst da was.",
        "Kannst du das bitte kürzer formulieren?", "Bitte keine Fachbegriffe.", "Da steht nichts von uns.",
        "ohne Anrede bitte.",
        "danke, aber du hast das Datum vergessen", "So schreibt doch kein Mensch.", "derselbe Fehler wie vorher",
        "Ich wollte doch nur zwei Sätze.", "Der Link funktioniert nicht.",
    ],
    "es": [
        "Demasiado rígido, más cercano por favor", "Suena como un robot.", "No te pregunté eso.",
        "¿Puedes hacerlo más corto?",
        "La boda no es en Toledo.", "Sigue siendo muy largo.", "Otra vez el mismo error",
        "Te has olvidado de la fecha.",
        "Gracias, pero sin tantos adjetivos", "No me trates de usted.", "Nadie habla así.",
        "una versión más corta, por favor",
        "Solo la respuesta.", "No uses viñetas.", "aquí no aparece la fecha", "Ve al grano.", "el enlace no funciona",
    ],
    "fr": [
        "C'est trop long.", "Ce n'est pas ce que je voulais.", "Plus court, s'il te plaît", "Toujours la même erreur",
        "Tu as oublié la date.", "Ça ne marche pas.", "Le mariage n'est pas à Lyon.", "Merci, mais en plus simple",
        "Refais-le sans liste.", "C'est faux.", "Non, pas ça.", "Trop formel", "Le lien ne fonctionne pas.",
        "Reformule ça",
    ],
    "it": [
        "È troppo lungo.", "Non è quello che ho chiesto.", "Più breve, per favore", "Ancora lo stesso errore",
        "Ti sei dimenticato la data.", "Non funziona.", "Il matrimonio non è a Siena.", "Grazie, ma senza elenco",
        "Riscrivilo in modo semplice", "È sbagliato.", "Troppo formale", "Non si capisce niente", "Manca la data",
    ],
    "pt": [
        "Está muito longo.", "Não era isso que eu queria.", "Mais curto, por favor", "O mesmo erro de novo",
        "Você esqueceu a data.", "Isso não funciona.", "O casamento não é em Braga.", "Obrigado, mas sem lista",
        "Reescreva isso", "Está errado.", "Formal demais", "Não faz sentido", "Faltou a data",
        "Credo, que engessado", "Ficou parecendo convite de prefeitura.", "Cadê a data?",
        "Chega de cerimônia, por favor.",
        "Não peguei nada, dá pra explicar de novo?", "Ninguém fala assim.", "As datas vieram trocadas.",
        "Vai direto ao ponto.",
        "Na verdade é em Coimbra.", "Em Portugal a gente não diz assim.", "Manda em tópicos.", "Muito textão.",
    ],
    "nl": [
        "Dat is veel te lang.", "Dat is niet wat ik vroeg.", "Iets korter graag", "Nog steeds dezelfde fout",
        "Je hebt de datum vergeten.", "Het werkt niet.", "De bruiloft is niet in Delft.",
        "Bedankt, maar zonder lijst",
        "Herschrijf het alsjeblieft.", "Dat klopt niet.", "Te formeel", "Liever zonder opsomming",
        "Er ontbreekt een datum",
    ],
    "pl": [
        "To jest za długie.", "Nie o to pytałem.", "Krócej proszę", "Znowu ten sam błąd", "Zapomniałeś o dacie.",
        "Nie działa.", "Ślub nie jest w Krakowie.", "Dzięki, ale bez listy", "Popraw to.", "To nieprawda.",
        "Zbyt formalne",
    ],
    "ru": [
        "Слишком длинно.", "Я не об этом просил, я просил короче", "Покороче, пожалуйста", "Опять та же ошибка",
        "Ты забыл дату.", "Не работает.", "Свадьба не в Казани.", "Спасибо, но без списка", "Перепиши это.",
        "Это неверно.",
        "Слишком официально", "Вы уверены?",
    ],
    "tr": [
        "Çok uzun olmuş.", "Bunu sormadım.", "Daha kısa lütfen", "Yine aynı hata", "Tarihi unutmuşsun.",
        "Çalışmıyor.",
        "Bu yanlış.", "Fazla resmi", "Tekrar dene.", "Hâlâ çok resmi",
    ],
    "ja": [
        "長すぎます。", "それは違います。", "もっと短くしてください。", "まだエラーが出ます",
        "日付が抜けています。", "動きません。",
        "結婚式は京都ではありません。", "ありがとう、でももう少しカジュアルに", "書き直してください。", "硬すぎる",
        "箇条書きはやめて",
    ],
    "hi": [
        "बहुत लंबा है।", "थोड़ा छोटा कीजिए", "तारीख छूट गई है।", "कुछ समझ में नहीं आया", "यह गलत है।",
        "सरल भाषा में लिखिए", "मैंने यह नहीं पूछा था", "bahut formal hai yaar", "thoda simple karo", "samajh nahi aaya",
        "phir se likho", "points mat do",
    ],
    "ar": [
        "طويل جدا.", "هذا ليس ما طلبته", "أقصر من فضلك", "نفس الخطأ مرة أخرى", "نسيت التاريخ.", "غير مفهوم",
        "مش فاهم حاجة", "من غير رموز لو سمحت", "اختصرها.", "كلام فارغ", "بدون قوائم", "الأسلوب جاف جدا",
    ],
    "en": [
        "That's not what I had in mind.", "You're just repeating yourself.", "You lost me.",
        "Nobody would ever read this.",
        "I can't send this.", "It doesn't mention the date.", "Where's the rest?", "Keep it short.",
        "In plain English please.",
        "um, no", "How many times do I have to say it?", "Tone it down.", "Way too many adjectives.",
        "Stop using big words.",
        "The page is supposed to be pink? It was supposed to be blue.", "Still confused.",
    ],
}  # fmt: skip

PRAISE = {
    "de": [
        "Nichts zu meckern!", "Genau so wollte ich das.", "Die Chefin war begeistert.", "Passt so.",
        "Kein Problem, danke!",
        "Wow, herrlich", "Ich nehme es so.", "Keine Fehler mehr, super", "Danke! Und wie wird das Wetter morgen?",
    ],
    "es": [
        "¡Ni una queja, gracias!", "Le encantó a mi madre.", "No cambies nada.", "Quedó muy bien.",
        "No hay problema, gracias",
        "Ya lo entiendo.", "¡Qué risa!", "Gracias. ¿Y qué tiempo hace mañana?",
    ],
    "fr": [
        "Parfait, merci !", "C'est exactement ce que je voulais.", "Rien à redire.", "Pas mal du tout !",
        "Ça marche, merci",
        "Beaucoup mieux", "Merci ! Et quel temps fera-t-il demain ?",
    ],
    "it": [
        "Perfetto, grazie!", "È proprio quello che volevo.", "Niente da ridire.", "Non c'è male!", "Adesso funziona",
        "Molto meglio", "Grazie! E che tempo fa domani?",
    ],
    "pt": [
        "Perfeito, obrigada!", "Era exatamente o que eu queria.", "Nada a reclamar.", "Sem problemas, obrigado",
        "Agora funciona!", "Muito melhor", "Obrigado! E como está o tempo amanhã?",
        "Impecável, já assinei.", "Mandou bem!", "Arrepiei lendo isso.", "Show, mandei desse jeito mesmo.",
        "Finalmente alguém que explica direito.", "Boa. E quanto custa o salão?", "Todo mundo adorou!",
    ],
    "nl": [
        "Perfect, dank je!", "Precies wat ik wilde.", "Niks op aan te merken, geen klachten.", "Niet slecht!",
        "Nu werkt het",
        "Veel beter", "Bedankt! En wat voor weer wordt het morgen?",
    ],
    "pl": [
        "Świetnie, dzięki!", "Dokładnie o to chodziło.", "Nie ma uwag.", "Nieźle!", "Już działa", "Dużo lepiej",
        "Dzięki! A jaka będzie jutro pogoda?",
    ],
    "ru": [
        "Отлично, спасибо!", "Именно то, что я хотел.", "Нечего добавить.", "Неплохо!", "Теперь работает",
        "Гораздо лучше",
        "Спасибо! А какая завтра погода?",
    ],
    "tr": [
        "Harika, teşekkürler!", "Tam istediğim gibi.", "Sorun yok, teşekkürler", "Fena değil!", "Şimdi çalışıyor",
        "Çok daha iyi", "Sağ ol! Yarın hava nasıl?",
    ],
    "ja": [
        "完璧です、ありがとう!", "ありがとうございます。", "問題ありません。", "悪くないね", "動きました!", "最高!",
        "助かりました。明日の天気は?",
    ],
    "hi": [
        "बहुत बढ़िया, धन्यवाद!", "यही चाहिए था", "कोई दिक्कत नहीं, शुक्रिया", "अब समझ आ गया", "shukriya, mast hai",
        "ekdum sahi", "धन्यवाद! और कल मौसम कैसा रहेगा?",
    ],
    "ar": [
        "ممتاز، شكرا!", "هذا ما كنت أريده بالضبط", "لا مشكلة، شكرا", "تمام فهمت", "رائع", "تسلم إيدك",
        "شكرا! وكيف الطقس غدا؟",
    ],
    "en": ["All sorted!", "You're a lifesaver.", "It went through.", "Much obliged", "Now I can.", "Worked a treat, ta"],
}  # fmt: skip

NEW_REQUESTS = {
    "de": [
        "Nenn mir drei Kuchen ohne Mehl.", "Was ist kürzer, ein Fuß oder ein Meter?",
        "Mein Drucker funktioniert nicht.",
        "Warum ist meine Katze immer noch müde?", "Korrigiere bitte: Er gehen nicht nach Haus.",
        "Welcher Pilz ist falsch benannt?",
        "Gibt es einen kürzeren Weg nach Bremen?", "Erklär mir das Problem der Türme von Hanoi.",
        "Wieder mal Regen hier.",
        "Schreib ein Gedicht, aber nicht über Liebe.", "Was tun, wenn das Auto zu laut ist?",
        "Ich habe heute keine Lust auf Fußball.",
    ],
    "es": [
        "Dame tres recetas sin gluten.", "¿Qué es más corto, una milla o un kilómetro?", "Mi impresora no funciona.",
        "¿Por qué mi gato sigue cansado?", "Corrige esta frase: yo no sabo nada.",
        "Explícame el problema de los tres cuerpos.",
        "Escribe un poema, pero no sobre el amor.", "¿Qué hago si el coche hace demasiado ruido?",
        "No sé qué cocinar hoy.",
    ],
    "fr": [
        "Donne-moi trois recettes sans gluten.", "Qu'est-ce qui est plus court, un mile ou un kilomètre ?",
        "Mon imprimante ne fonctionne pas.", "Pourquoi mon chat est-il toujours fatigué ?",
        "Corrige : il a pas venu hier soir.",
        "Explique-moi le problème des trois corps.", "Écris un poème, mais pas sur l'amour.",
        "Je n'ai pas d'idée pour dîner.",
    ],
    "it": [
        "Dammi tre ricette senza glutine.", "Cosa è più corto, un miglio o un chilometro?",
        "La mia stampante non funziona.",
        "Perché il mio gatto è ancora stanco?", "Correggi: io non sapo niente di questo.",
        "Spiegami il problema dei tre corpi.",
        "Scrivi una poesia, ma non sull'amore.", "Non so cosa cucinare oggi.",
    ],
    "pt": [
        "Me dê três receitas sem glúten.", "O que é mais curto, uma milha ou um quilômetro?",
        "Minha impressora não funciona.",
        "Por que meu gato continua cansado?", "Corrija: nós não vai mais lá.", "Explique o problema dos três corpos.",
        "Escreva um poema, mas não sobre o amor.", "Não sei o que cozinhar hoje.",
        "Escreva um e-mail menos formal para a Marina.", "Quem marcou a próxima reunião?",
        "Hoje está frio, que casaco levo?",
    ],
    "nl": [
        "Geef me drie recepten zonder gluten.", "Wat is korter, een mijl of een kilometer?",
        "Mijn printer werkt niet.",
        "Waarom is mijn kat nog steeds moe?", "Corrigeer: hij heb dat niet gedaan.",
        "Leg het probleem van de drie lichamen uit.",
        "Schrijf een gedicht, maar niet over liefde.", "Ik weet niet wat ik vandaag moet koken.",
    ],
    "pl": [
        "Podaj trzy przepisy bez glutenu.", "Co jest krótsze, mila czy kilometr?", "Moja drukarka nie działa.",
        "Dlaczego mój kot jest nadal zmęczony?", "Popraw: on nie ma czas jutro.", "Napisz wiersz, ale nie o miłości.",
        "Nie wiem, co dziś ugotować.",
    ],
    "ru": [
        "Назови три рецепта без глютена.", "Что короче, миля или километр?", "Мой принтер не работает.",
        "Почему моя кошка всё ещё уставшая?", "Исправь: он не пошёл в школа.", "Напиши стихотворение, но не о любви.",
        "Не знаю, что сегодня приготовить.",
    ],
    "tr": [
        "Bana glutensiz üç tarif ver.", "Hangisi daha kısa, mil mi kilometre mi?", "Yazıcım çalışmıyor.",
        "Kedim neden hâlâ yorgun?", "Üç cisim problemini açıkla.", "Bugün ne pişireceğimi bilmiyorum.",
    ],
    "ja": [
        "グルテンなしのレシピを教えてください。", "マイルとキロではどちらが短いですか?", "プリンターが動きません。",
        "猫はなぜまだ疲れているの?", "三体問題を説明してください。", "恋愛ではない詩を書いてください。",
        "今日は何を作るか決まっていません。",
    ],
    "hi": [
        "बिना अंडे की तीन रेसिपी बताइए।", "मील छोटा होता है या किलोमीटर?", "मेरा प्रिंटर काम क्यों नहीं कर रहा?",
        "मेरी बिल्ली अब भी क्यों थकी रहती है?", "नदी पर एक कविता लिखिए।", "goa ka ticket kitne ka hai?",
    ],
    "ar": [
        "أعطني ثلاث وصفات بدون بيض.", "أيهما أقصر، الميل أم الكيلومتر؟", "لماذا قطتي متعبة دائما؟",
        "اكتب قصيدة عن البحر.", "كيف أصلح الطابعة؟", "عندي سؤال عن الضرائب",
    ],
    "en": [
        "What do you call a horse that never wins?", "Write a story where nobody can read.",
        "How do I stop using plastic bags?",
        "Explain in plain English what causes inflation and debt.",
        "My printer is not helping the environment, what else is green?",
        "Find jobs for people who are lost in life without any degree.",
        "Give me a recipe that doesn't include eggs.",
    ],
}  # fmt: skip
"""With words that complaints have too."""


def cases(sentences: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(language, said) for language, all_said in sentences.items() for said in all_said]


def question(language: str, said: str) -> JudgeQuestion:
    asked, response = TURNS[language]
    return JudgeQuestion(
        messages=[{"role": "user", "content": asked}],
        response=response,
        next_state=[{"role": "user", "content": said}],
        role="user",
    )


def test_every_language_with_a_list_is_tested() -> None:
    for sentences in (COMPLAINTS, PRAISE, NEW_REQUESTS):
        assert set(sentences) == set(TURNS) == {"en", *LISTED}


@pytest.mark.parametrize(("language", "said"), cases(COMPLAINTS))
def test_complaints_and_change_requests_are_negative(language: str, said: str) -> None:
    assert vote_by_rules(question(language, said)).score == -1


@pytest.mark.parametrize(("language", "said"), cases(PRAISE))
def test_thanks_and_praise_are_positive_even_before_a_new_request(language: str, said: str) -> None:
    assert vote_by_rules(question(language, said)).score == 1
    assert hint_by_rules(question(language, said)) == ""


@pytest.mark.parametrize(("language", "said"), cases(NEW_REQUESTS))
def test_a_new_request_with_misleading_words_is_neutral(language: str, said: str) -> None:
    assert vote_by_rules(question(language, said)).score == 0
    assert hint_by_rules(question(language, said)) == ""


@pytest.mark.parametrize("language", sorted(LISTED))
def test_the_language_of_a_request_is_detected(language: str) -> None:
    assert language_of(TURNS[language][0]) == language


def test_chinese_japanese_and_russian_characters_are_distinguished() -> None:
    assert language_of("もう一度", "") == "ja" and language_of("完璧", "結婚式の招待状を書いて") == "ja"
    assert language_of("Це дуже довго, її немає", "") == "other" and language_of("Это долго", "") == "ru"


def test_a_negative_reply_to_the_assistants_question_is_not_a_complaint() -> None:
    asked = JudgeQuestion(
        messages=[{"role": "user", "content": "Plane eine Reise nach Ulm."}],
        response="Gern. Soll die Reise mit dem Zug sein?",
        next_state=[{"role": "user", "content": "Der Zug fährt dort nicht am Sonntag."}],
        role="user",
    )
    assert vote_by_rules(asked).score == 0


@pytest.mark.parametrize(
    ("language", "said"),
    [("de", "Das ist falsch."), ("es", "Eso está mal."), ("fr", "C'est faux."), ("ru", "Нет, это неверно.")],
)
def test_a_bare_rejection_is_a_complaint_without_a_hint(language: str, said: str) -> None:
    assert vote_by_rules(question(language, said)).score == -1
    assert hint_by_rules(question(language, said)) == ""


def test_a_single_ambiguous_word_does_not_change_the_language() -> None:
    assert language_of("Runs fine, ta.", "Write a query. SELECT it from the table.") == "en"
    assert language_of("Zu lang, bitte kürzer", "Write a query. SELECT it from the table.") == "de"


@pytest.mark.parametrize(("language", "said"), [("de", "förmlich??"), ("es", "¿¿Toledo??"), ("ja", "京都?!")])
def test_doubt_about_a_word_of_the_answer_is_a_complaint(language: str, said: str) -> None:
    assert vote_by_rules(question(language, said)).score == -1
